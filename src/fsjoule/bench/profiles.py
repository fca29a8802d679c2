"""A profile with each measurement, and the symbols of each boot, asked for when nothing more is measured on it.

Asking a board for its symbols takes it some seconds, after which nothing on it would be as it is without profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from fsjoule.bench.judge import Evidence
from fsjoule.bench.samples import take_samples
from fsjoule.errors import LabError
from fsjoule.model import SAMPLED, Symbols
from fsjoule.ports import Profiler, ResultStore, Shell
from fsjoule.store.profiles import PROFILE_FILE, encode_profile, encode_symbols, symbols_file

# Some seconds of a serial line each.
_LINES: Final = 16_000
_READING_TIMEOUT_S: Final = 120.0
_TABLE: Final = "/proc/kallsyms"
_PART: Final = "/tmp/fsjoule-symbols"  # noqa: S108 - on the board, whose /tmp is ours alone
_FIND: Final = "find /lib/modules/$(uname -r)/kernel/ -name '*.ko*'"
# The part of a module's path where its folder in the kernel's source begins.
_FOLDER: Final = 5
# Text, also of functions that others may replace.
_CODE: Final = ("t", "w")
# Where a processor of 32 bits enters the kernel: code that is copied there when it boots, and has no symbol.
_VECTORS: Final = 0xFFFF0000
_HINT: Final = "a kernel is built with CONFIG_KALLSYMS to have symbols"


def attach_profile(profiler: Profiler, evidence: Evidence) -> None:
    """Put the profile of what was just measured beside its other files; a note says so where there is none."""
    window = evidence.marks[0][1:]
    profile = profiler.take(window) if window else None
    if profile is None:
        evidence.notes.append("no profile: the board did not come to the end of its window")
    else:
        evidence.attachments[PROFILE_FILE] = encode_profile(profile)


def attach_samples(shell: Shell, evidence: Evidence, before: str, after: str) -> None:
    """Put perf's samples between two readings of the counters beside the other files of what was just measured.

    Raises LabError if perf cannot tell them.
    """
    evidence.complaints.append(SAMPLED)
    profile = take_samples(shell, before, after)
    if profile is None:
        evidence.notes.append("no profile: perf took no sample between the marks")
    else:
        evidence.attachments[PROFILE_FILE] = encode_profile(profile)


def keep_symbols(shell: Shell, boot: int, store: ResultStore, say: Callable[[str], None]) -> None:
    """Keep the symbols of a booted board in the run folder; without them its profiles are addresses, which is said.

    Raises StorageError if they cannot be stored.
    """
    try:
        symbols = boot_symbols(shell)
    except LabError as error:
        say(f"the profiles of boot {boot} have no symbols: {error}")
    else:
        store.keep(symbols_file(boot), encode_symbols(symbols))


def boot_symbols(shell: Shell) -> Symbols:
    """The symbols of a booted board's kernel and modules. Raises LabError if it has none."""
    lines: list[str] = []
    first = 1
    while True:
        script = f"sed -n {first},{first + _LINES - 1}p {_TABLE} > {_PART} && wc -l < {_PART}"
        done = shell.run(("sh", "-c", script), timeout_s=_READING_TIMEOUT_S)
        if done.exit_code != 0:
            raise LabError(f"the board's kernel has no symbols: {done.stdout.strip()[-200:]}", hint=_HINT)
        count = int(done.stdout)
        if count:
            lines += shell.get(_PART).decode(errors="replace").splitlines()
        if count < _LINES:
            break
        first += _LINES
    found = shell.run(("sh", "-c", _FIND), timeout_s=_READING_TIMEOUT_S)
    shell.run(("rm", "-f", _PART))
    return parse_symbols(lines, found.stdout.splitlines())


def parse_symbols(lines: Sequence[str], files: Sequence[str] = ()) -> Symbols:
    """The functions of /proc/kallsyms: `c0101000 T name`, and `[module]` behind it. `files` are those of modules.

    One name for each address, the same whatever the order. Raises LabError if there is none that is told where it is.
    """
    found: dict[int, tuple[bool, str, str]] = {}
    for line in lines:
        address, kind, name, *module = line.split()
        if kind.lower() not in _CODE or name.startswith("$"):
            continue
        # An alias without underscores is what people call it.
        named = (name.startswith("_"), name, module[0].strip("[]") if module else "")
        at = int(address, 16)
        found[at] = min(found.get(at, named), named)
    if not any(found):
        raise LabError("the board's kernel does not tell where its symbols are", hint=_HINT)
    if max(found) < _VECTORS:
        found[_VECTORS] = (True, "vectors", "")
    at = sorted(found)
    names, modules = [found[each][1] for each in at], [found[each][2] for each in at]
    loaded = set(modules)
    # /lib/modules/6.1.0-44-armmp/kernel/fs/btrfs/btrfs.ko.xz; a module's name has no hyphens.
    parts = (Path(line).parts for line in files)
    folders = {path[-1].partition(".")[0].replace("-", "_"): "/".join(path[_FOLDER:-1]) for path in parts}
    return Symbols(
        np.array(at, np.uint64), names, modules, {name: folder for name, folder in folders.items() if name in loaded}
    )
