"""Operations of workloads, by their names in figures and files, and labels of sizes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

MIB: Final = 1024 * 1024
KIB: Final = 1024


class IoPattern(StrEnum):
    """fio's `rw`."""

    READ = "read"
    WRITE = "write"
    RANDREAD = "randread"
    RANDWRITE = "randwrite"
    READWRITE = "rw"  # one read for each write
    RANDRW = "randrw"

    @property
    def writes(self) -> bool:
        return self not in (IoPattern.READ, IoPattern.RANDREAD)

    @property
    def reads(self) -> bool:
        return self not in (IoPattern.WRITE, IoPattern.RANDWRITE)


# Patterns that only read or only write.
PURE_PATTERNS: Final = (IoPattern.READ, IoPattern.WRITE, IoPattern.RANDREAD, IoPattern.RANDWRITE)


class TimedKind(StrEnum):
    BOOT = "boot"
    MKFS = "mkfs"
    MOUNT = "mount"
    UMOUNT = "umount"
    FSCK = "fsck"
    COPY = "copy"
    WRITE_FILES = "write_files"
    HASH_FILES = "hash_files"
    FRAGMENT = "fragment"
    REMOVE = "removing"

    @property
    def on_files(self) -> bool:
        """Whether it works on many files of a mounted filesystem. The unmount after it is timed separately."""
        return self in (TimedKind.WRITE_FILES, TimedKind.HASH_FILES, TimedKind.FRAGMENT, TimedKind.REMOVE)


class BlockKind(StrEnum):
    BLOCK = "block"  # what a test does between its marks


class Hazard(StrEnum):
    POWER_LOSS = "power-loss"
    DM_FLAKEY = "dm-flakey"


class ImportKind(StrEnum):
    IMPORTED = "imported"  # what others have measured


class FlakeyModel(StrEnum):
    """When a device damages written data."""

    AFTER_10S = "after-10s"  # everything from 10 s on
    ALTERNATING = "alternating"  # 1 s clean, 1 s damaging, and so on


def size_label(size_bytes: int) -> str:
    """A size in the largest unit that leaves it whole."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"
