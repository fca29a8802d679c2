"""All operations without fio: boot, mkfs, mount, unmount, fsck, and a copy from memory."""

from __future__ import annotations

from typing import Final

from fsjoule.model import MIB, TimedKind, TimedWorkload
from fsjoule.suites.suite import Suite

_KINDS: Final = (TimedKind.BOOT, TimedKind.MKFS, TimedKind.MOUNT, TimedKind.UMOUNT, TimedKind.FSCK)

SUITE: Final = Suite(
    "operations",
    "boot, mkfs, mount, unmount, fsck, a copy of 16 MiB",
    (*(TimedWorkload(kind) for kind in _KINDS), TimedWorkload(TimedKind.COPY, 16 * MIB)),
)
