"""Locks of this computer. The kernel frees one however its holder ends.

They are files of /run/lock, where each user may make some. A container has its own.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

LOCKS: Final = Path("/run/lock")


def try_lock(name: str, folder: Path = LOCKS) -> int | None:
    """The descriptor of a lock, to be closed when it is no longer needed; None if another process has the lock.

    Raises OSError if this user may not have it: another user's file in a sticky folder, a link of theirs to a file of
    ours, or no such folder.
    """
    descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
