"""A CPU of the host for a board's QEMU: one with the fewest boards of this computer, whichever labs they are in.

Each board holds the lock of a slot of its CPU while it lives, so the kernel frees the slot however the board ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fsjoule.host.computer_lock import LOCKS, try_lock

_SLOTS: Final = 64
_WAIT_S: Final = 5.0
_LOOK_S: Final = 0.01


class HostCpu:
    """Call `close` when the board has ended."""

    def __init__(self, cpus: Collection[int], locks: Path = LOCKS) -> None:
        """Choose one of the `cpus`. Without the right to lock, boards may share it though another one is free."""
        self._slot: int | None = None
        with _alone(locks):
            boards = {cpu: _boards(locks, cpu) for cpu in cpus}
            # Of equals the last one: the first ones have more of the system's own work.
            self.number: Final = min(boards, key=lambda cpu: (boards[cpu], -cpu))
            for slot in range(_SLOTS):
                with suppress(OSError):
                    self._slot = try_lock(_name(self.number, slot), locks)
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
    lock = None
    # Without the right to lock there is nothing to wait for.
    with suppress(OSError):
        while (lock := try_lock("fsjoule-cpus", locks)) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _boards(locks: Path, cpu: int) -> int:
    return sum(_is_held(locks, _name(cpu, slot)) for slot in range(_SLOTS))


def _name(cpu: int, slot: int) -> str:
    return f"fsjoule-cpu{cpu}-{slot}"


def _is_held(locks: Path, name: str) -> bool:
    if not (locks / name).exists():
        return False
    try:
        lock = try_lock(name, locks)
    except OSError:
        # Another user has or had it: it counts as held.
        return True
    if lock is not None:
        os.close(lock)
    return lock is None
