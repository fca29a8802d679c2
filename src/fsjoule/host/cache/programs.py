"""Programs that fsjoule compiles for itself: one file each in the cache, checked before each use, healed if damaged.

Beside a program `NAME` lies `NAME.sha256`. A program that does not have that digest, or may not be run, is built again:
a machine that lost its power may have left it empty, under its own name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_MODE: Final = 0o755


def built(program: Path, build: Callable[[Path], Path], progress: Callable[[str], None], *, what: str) -> Path:
    """A program of the cache, or one that `build` makes now in the folder that it is given, and names.

    Raises what `build` raises, and OSError if it cannot be kept.
    """
    if _is_whole(program):
        return program
    again = os.path.lexists(program)
    progress(f"{program} is not as it was built: building {what} again" if again else f"building {what}")
    # Beside its place and renamed: a build that is broken off leaves nothing that looks whole, and of two at once
    # either may win.
    with tempfile.TemporaryDirectory(dir=program.parent, prefix="building-") as folder:
        made = build(Path(folder))
        made.chmod(_MODE)
        digest = made.with_name(f"{made.name}.sha256")
        digest.write_text(_digest(made))
        for path, place in ((made, program), (digest, _record(program))):
            _to_disk(path)
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            path.replace(place)
        _to_disk(program.parent)
    return program


def _is_whole(program: Path) -> bool:
    with suppress(OSError):
        if program.is_file() and _record(program).is_file() and os.access(program, os.X_OK):
            return _record(program).read_bytes() == _digest(program).encode()
    return False


def _record(program: Path) -> Path:
    return program.with_name(f"{program.name}.sha256")


def _digest(program: Path) -> str:
    return hashlib.sha256(program.read_bytes()).hexdigest()


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
