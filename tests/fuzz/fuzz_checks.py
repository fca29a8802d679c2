"""What is wrong with how a command ended, and with what it left."""

from __future__ import annotations

import gzip
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fuzz_cases import Case
from fuzz_commands import Ended

_EXIT_CODES: Final = (0, 2, 4)
# What rich itself tells a terminal: colours, and the lines of a progress bar.
_STYLES: Final = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\x1b\]8;[^\x1b]*\x1b\\")
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def wrong_in(ended: Ended, case: Case, *, terminal: bool) -> Iterator[str]:
    if ended.late:
        yield f"hangs: {ended.seconds:.0f} s, {ended.cpu_s:.1f} s of CPU"
    elif ended.code not in _EXIT_CODES:
        name = signal.Signals(-ended.code).name if ended.code < 0 else str(ended.code)
        yield f"exit code {name} after {ended.cpu_s:.1f} s of CPU"
    if b"Traceback" in ended.err:
        yield "a traceback"
    for name, said in (("stdout", ended.out), ("stderr", ended.err)):
        shown = _STYLES.sub(b"", said) if terminal and name == "stdout" else said
        text = shown.replace(b"\r\n", b"\n").decode(errors="surrogateescape")
        if terminal and name == "stdout":
            text = text.replace("\r", "")
        if found := _CONTROLS.search(text):
            yield f"{found[0]!r} on {name}"
        if case.token.encode() in said:
            yield f"{name} holds what is outside"


def kept_token(case: Case, before: set[Path]) -> Iterator[str]:
    """What was written and holds what is outside."""
    token = case.token.encode()
    written = [path for path in case.out.rglob("*") if path not in before]
    for path in (*written, case.run / "report.html"):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        if token in content:
            yield f"{path.relative_to(case.folder)} holds what is outside"


def listed(case: Case) -> dict[str, tuple[int, int, int, str]]:
    """All that is not to change."""
    found: dict[str, tuple[int, int, int, str]] = {}
    for top, folders, files in os.walk(os.fsencode(case.folder)):
        if top == os.fsencode(case.folder):
            folders.remove(b"out")
        for name in (*folders, *files):
            path = os.path.join(top, name)
            if path == os.fsencode(case.run / "report.html"):
                continue
            about = os.lstat(path)
            at = os.readlink(path) if os.path.islink(path) else b""
            folder = os.path.isdir(path)
            found[os.fsdecode(path)] = (
                about.st_mode,
                0 if folder else about.st_size,
                0 if folder else about.st_mtime_ns,
                os.fsdecode(at),
            )
    return found
