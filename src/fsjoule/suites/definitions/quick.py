"""A first look at a board: the energy paper's four patterns at its smallest block size, and the timed operations."""

from __future__ import annotations

from typing import Final

from fsjoule.model import KIB, MIB, PURE_PATTERNS, FioWorkload, TimedKind, TimedWorkload
from fsjoule.suites.suite import Suite

SUITE: Final = Suite(
    "quick",
    "four I/O patterns at 16 KiB; boot, mkfs, mount, unmount",
    (
        TimedWorkload(TimedKind.BOOT),
        TimedWorkload(TimedKind.MKFS),
        TimedWorkload(TimedKind.MOUNT),
        TimedWorkload(TimedKind.UMOUNT),
        *(FioWorkload(pattern, 16 * KIB, 32 * MIB) for pattern in PURE_PATTERNS),
    ),
)
