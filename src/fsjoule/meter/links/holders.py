"""Processes that have a terminal open: two programs that read one terminal steal bytes from each other."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
# Majors of pseudo terminals (Documentation/admin-guide/devices.txt): each mount of devpts has its own /dev/pts/0.
_PSEUDO: Final = range(136, 144)


@dataclass(frozen=True, slots=True)
class Holder:
    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def holders(path: str, *, ours: bool = False) -> tuple[Holder, ...]:
    """The visible processes that have the terminal open, including this one only with `ours`."""
    try:
        wanted = _identity(os.stat(path))  # noqa: PTH116 - one plain call per descriptor, thousands of them
    except OSError:
        return ()
    pids = [entry for entry in _entries(_PROC) if entry.isdecimal() and (ours or int(entry) != os.getpid())]
    return tuple(Holder(int(pid), _name(pid)) for pid in pids if _has_open(pid, wanted))


def is_pseudo(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in _PSEUDO


def is_terminal(path: str) -> bool:
    """Whether the path is a terminal. It is not opened: other devices can be open in every process."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as below
    except OSError:
        return False
    if not stat.S_ISCHR(status.st_mode):
        return False
    subsystem = Path(f"/sys/dev/char/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}/subsystem")
    return is_pseudo(status) or not subsystem.exists() or subsystem.resolve().name == "tty"


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_rdev, status.st_dev if is_pseudo(status) else 0


def _has_open(pid: str, wanted: tuple[int, int]) -> bool:
    folder = f"{_PROC}/{pid}/fd"
    for descriptor in _entries(Path(folder)):
        try:
            status = os.stat(f"{folder}/{descriptor}")  # noqa: PTH116 - as above
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode) and _identity(status) == wanted:
            return True
    return False


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - as above
    except OSError:
        return []


def _name(pid: str) -> str:
    try:
        return (_PROC / pid / "comm").read_text(errors="replace").strip()
    except OSError:
        return "a program that has just ended"
