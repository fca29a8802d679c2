"""Run a long step of a build and keep saying how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from fsjoule import process
from fsjoule.errors import LabError

SAY_EVERY_S: Final = 5.0


def run_watched(
    argv: Sequence[str | Path],
    *,
    log: Path,
    timeout_s: float,
    how_far: Callable[[], str],
    progress: Callable[[str], None],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    transient: bool = False,
) -> None:
    """Run a program to its end, its output in `log`, and pass `how_far()` to `progress` every few seconds.

    Raises LabError (`transient` as given) with the end of the log if it fails or takes longer than `timeout_s`.
    """
    started = said = time.monotonic()
    child = process.start(argv, log=log, cwd=cwd, env=env)
    try:
        while child.poll() is None:
            now = time.monotonic()
            if now - started > timeout_s:
                raise LabError(f"{argv[0]} took longer than {timeout_s:.0f} s", transient=True)
            if now - said >= SAY_EVERY_S:
                progress(how_far())
                said = now
            time.sleep(0.05)
    finally:
        process.stop(child)
    if child.returncode != 0:
        tail = log.read_text(errors="replace").strip()[-2000:]
        raise LabError(f"{argv[0]} failed with exit code {child.returncode}: {tail}", transient=transient)


def size_mib(*paths: Path) -> float:
    """MiB of all files below the given files and folders; files may come and go meanwhile."""
    total = 0
    for top in paths:
        for path in [top, *top.rglob("*")]:
            try:
                total += path.lstat().st_blocks * 512
            except OSError:
                continue
    return total / 2**20
