"""Long steps of a build, with progress reports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.host.process_ref import ending, failing

SAY_EVERY_S: Final = 5.0
_GUARD: Final = """
import os, signal, sys
with os.fdopen(int(sys.argv[1]), "rb") as line:
    group = line.readline()
    line.read()  # returns when the other end's process has ended
try:
    if group:
        os.killpg(int(group), signal.SIGKILL)
except ProcessLookupError:
    pass
"""


class ExitError(LabError):
    """The program ended by itself, with a failure."""


def run_watched(
    argv: Sequence[str | Path],
    *,
    log: Path,
    timeout_s: float,
    how_far: Callable[[], str],
    progress: Callable[[str], None],
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    transient: bool = False,
    nice: int = 0,
) -> None:
    """Run a program to its end, its output in `log`, and pass `how_far()` to `progress` every 5 s.

    `nice` is its least niceness. Raises ExitError (`transient` as given) with the end of the log if it fails, LabError
    if a signal ends it or it takes longer than `timeout_s`, and what `progress` raises; it is ended then.
    """
    started = said = time.monotonic()
    # This process may be killed at any moment: the guard is there first, and the program names its group by itself.
    guard, line = _guard()
    try:
        named = ["bash", "-c", f'echo $$ >&{line}; exec "$@" {line}>&-', "bash", process.find_tool(str(argv[0]))]
        child = process.start([*named, *argv[1:]], log=log, cwd=cwd, env=env, pass_fds=(line,))
    except BaseException:
        process.stop(guard)
        os.close(line)
        raise
    try:
        if nice > os.getpriority(os.PRIO_PROCESS, 0):
            with suppress(ProcessLookupError):  # it has ended
                os.setpriority(os.PRIO_PGRP, child.pid, nice)
        while child.poll() is None:
            now = time.monotonic()
            if now - started > timeout_s:
                raise LabError(f"{argv[0]} took longer than {timeout_s:.0f} s", transient=True)
            if now - said >= SAY_EVERY_S:
                progress(how_far())
                said = now
            time.sleep(0.05)
    finally:
        process.stop(guard)
        os.close(line)
        process.stop(child)
    if child.returncode < 0:
        raise LabError(f"{argv[0]} {ending(child.returncode)}", transient=transient)
    if child.returncode != 0:
        tail = log.read_text(errors="replace").strip()[-2000:]
        raise ExitError(f"{argv[0]} {failing(child.returncode)}: {tail}", transient=transient)


def _guard() -> tuple[subprocess.Popen[bytes], int]:
    """A process that ends a process group when this process has ended in any way, and the pipe for the group's number.

    The kernel ends only the program itself with us, not its children: compilers below make, apt below mmdebstrap.
    """
    reader, writer = os.pipe()
    try:
        command = [sys.executable, "-I", "-S", "-c", _GUARD, str(reader)]
        return process.start(command, pass_fds=(reader,), die_with_parent=False), writer
    except BaseException:
        os.close(writer)
        raise
    finally:
        os.close(reader)


def size_mib(*paths: Path) -> float:
    """MiB of all files below the given files and folders; files may come and go while it counts."""
    total = 0
    for top in paths:
        for path in [top, *top.rglob("*")]:
            try:
                total += path.lstat().st_blocks * 512
            except OSError:
                continue
    return total / 2**20
