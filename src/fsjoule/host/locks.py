"""Locks that are files. The kernel frees one however its holder ends.

Those of the whole computer are in /run/lock, where each user may make some. A container has its own.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import Final

LOCKS: Final = Path("/run/lock")
# A lock in /proc/locks: its kind, its process, and the file's inode.
_LOCK: Final = re.compile(r"FLOCK +\S+ +WRITE +(\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) ")


def locked(path: Path, *, flags: int = os.O_CREAT, mode: int = 0o600) -> int | None:
    """The descriptor of the file, which is locked until it is closed; None if another process has the lock.

    The file is made if it is absent. Raises OSError.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # another process ended and removed it before our lock


def try_lock(name: str, folder: Path = LOCKS) -> int | None:
    """A lock of this computer, as `locked`.

    Raises OSError if this user may not have it: another user's file in a sticky folder, a link of theirs to a file of
    ours, or no such folder.
    """
    return locked(folder / name, flags=os.O_CREAT | os.O_NOFOLLOW, mode=0o666)


def locker(inode: int) -> int:
    """The process that has locked the file with this number; 0 if there is none, or it is unknown."""
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return 0
    return next((int(pid) for pid, file in _LOCK.findall(locks) if int(file) == inode), 0)


def command(pid: int) -> str:
    """The beginning of a process's command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = ""
    return " ".join(words.split())[:60] or "unknown command"
