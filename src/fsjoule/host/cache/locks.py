"""Locks of the cache. The kernel drops them when their process ends, however it ends.

An entry has two: its builder or remover holds `.NAME.lock`, and all its users share `.NAME.use`.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from fsjoule.errors import HostError
from fsjoule.host.interrupts import check_cancelled

_log: Final = logging.getLogger(__name__)

_POLL_S: Final = 0.2
_SAY_EVERY_S: Final = 10.0
_REMOVAL_TIMEOUT_S: Final = 120.0

# Held until this process ends: a run may need its card, kernel and emulator again at any time.
_used: Final[dict[Path, IO[str]]] = {}


@atexit.register
def let_go() -> None:
    while _used:
        _used.popitem()[1].close()


@contextmanager
def locked(lock: Path, what: str, timeout_s: float) -> Generator[None]:
    """Hold an exclusive lock while building. Raises HostError if somebody else holds it for too long."""
    deadline = time.monotonic() + timeout_s
    said = 0.0
    while (handle := _taken(lock, fcntl.LOCK_EX)) is None:
        holder = _holder(lock)
        now = time.monotonic()
        if now > deadline:
            raise HostError(
                f"{_named(holder)} has been building {what} for more than {timeout_s:.0f} s",
                transient=True,
                hint=f"wait for it, or end it; the lock is {lock}",
            )
        if now > said + _SAY_EVERY_S:
            check_cancelled()
            _log.info("waiting for %s, which is building %s", _named(holder), what)
            said = now
        time.sleep(_POLL_S)
    try:
        with suppress(OSError):  # it works as a lock even on a full disk
            handle.truncate(0)
            os.write(handle.fileno(), str(os.getpid()).encode())
        yield
    finally:
        handle.close()


def is_locked(lock: Path) -> bool:
    if not os.path.lexists(lock) or not _is_file(lock):
        return False
    try:
        handle = _taken(lock, fcntl.LOCK_SH)
    except OSError:
        return True  # another user's lock, which we may not see
    if handle is not None:
        handle.close()
    return handle is None


def use(lock: Path) -> None:
    """Share a lock until this process ends, so that `clean` leaves its entry alone. A read-only cache needs none."""
    if lock in _used and _is_same_file(_used[lock].fileno(), lock):
        return
    deadline = time.monotonic() + _REMOVAL_TIMEOUT_S
    try:
        while (handle := _taken(lock, fcntl.LOCK_SH)) is None:
            if time.monotonic() > deadline:
                raise HostError(f"another process has been removing {lock.parent} for too long", transient=True)
            time.sleep(_POLL_S)
    except OSError:
        return
    _used[lock] = handle


def is_used_here(lock: Path) -> bool:
    """Whether this process shares the lock."""
    return lock in _used


@contextmanager
def unused(lock: Path) -> Generator[bool]:
    """Whether nobody else uses the lock's entry. Nobody can start to use it while the body runs."""
    if lock in _used:
        _used.pop(lock).close()
    handle = _taken(lock, fcntl.LOCK_EX)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            handle.close()


def discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _taken(lock: Path, kind: int) -> IO[str] | None:
    """The locked file; None if another process holds it, or has just removed it."""
    # A folder cannot be locked, and opening a FIFO would block: only a regular file is a lock.
    if not _is_file(lock):
        discard(lock)
    try:
        handle = lock.open("a+")
    except OSError:
        if kind != fcntl.LOCK_SH:
            raise
        handle = lock.open("r")  # another user's or a read-only cache: reading is enough for a shared lock
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    if _is_same_file(handle.fileno(), lock):
        return handle
    handle.close()
    return None


def _holder(lock: Path) -> str:
    try:
        return lock.read_text().strip() or "unknown"
    except OSError:
        return "unknown"


def _named(holder: str) -> str:
    return "a build of this process" if holder == str(os.getpid()) else f"another process (pid {holder})"


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
