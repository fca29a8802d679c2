"""A CPU of the host for a board's QEMU: one with the fewest boards of this computer, whichever labs they are in.

Each board holds the lock of a slot of its CPU while it lives, so the kernel frees the slot however the board ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/run/lock")
_SLOTS: Final = 64
_WAIT_S: Final = 5.0
_LOOK_S: Final = 0.01


class HostCpu:
    """Call `close` when the board has ended."""

    def __init__(self, cpus: Collection[int], locks: Path = _LOCKS) -> None:
        """Choose one of the `cpus`. Without the right to lock, boards may share it though another one is free."""
        self._slot: int | None = None
        with _alone(locks):
            boards = {cpu: _boards(locks, cpu) for cpu in cpus}
            # Of equals the last one: the first ones have more of the system's own work.
            self.number: Final = min(boards, key=lambda cpu: (boards[cpu], -cpu))
            for slot in range(_SLOTS):
                self._slot = _try_lock(_file(locks, self.number, slot))
                if self._slot is not None:
                    break

    def close(self) -> None:
        if self._slot is not None:
            os.close(self._slot)
            self._slot = None


@contextmanager
def _alone(locks: Path) -> Generator[None]:
    """Keep other boards from choosing meanwhile, unless one of them stands still while it chooses."""
    deadline = time.monotonic() + _WAIT_S
    while (lock := _try_lock(locks / "fsjoule-cpus")) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _boards(locks: Path, cpu: int) -> int:
    return sum(_is_locked(_file(locks, cpu, slot)) for slot in range(_SLOTS))


def _file(locks: Path, cpu: int, slot: int) -> Path:
    return locks / f"fsjoule-cpu{cpu}-{slot}"


def _is_locked(file: Path) -> bool:
    if not file.exists():
        return False
    lock = _try_lock(file)
    if lock is not None:
        os.close(lock)
    return lock is None


def _try_lock(file: Path) -> int | None:
    """The descriptor of a locked file; None if another process has it, or if it may not be opened."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
