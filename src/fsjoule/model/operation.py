"""Operations of workloads, by their names in figures and files, and labels of sizes."""

from __future__ import annotations

import re
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
    POWER_ON = "power-on"  # a whole boot, in segments
    MKFS = "mkfs"
    MOUNT = "mount"
    UMOUNT = "umount"
    FSCK = "fsck"
    COPY = "copy"
    WRITE_FILES = "write_files"
    HASH_FILES = "hash_files"
    FRAGMENT = "fragment"
    REMOVE = "removing"
    COMMAND = "command"  # a user's own

    @property
    def on_files(self) -> bool:
        """Whether it works on many files of a mounted filesystem. The unmount after it is timed separately."""
        return self in (TimedKind.WRITE_FILES, TimedKind.HASH_FILES, TimedKind.FRAGMENT, TimedKind.REMOVE)


class BlockKind(StrEnum):
    BLOCK = "block"  # what a test does between its marks


class StateKind(StrEnum):
    STATE = "state"  # no work: a state that the board is held in


class HeldState(StrEnum):
    """States that a board is held in. Idle is booted, with whatever runs beside; `suspend` is suspended to RAM."""

    IDLE = "idle"
    OFF = "off"
    SUSPEND = "suspend"


class Hazard(StrEnum):
    POWER_LOSS = "power-loss"
    DM_FLAKEY = "dm-flakey"
    CRASH_STATES = "crash-states"


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


def fio_bytes(text: str) -> int:
    """A size in fio's words, with its default `kb_base=1024`: `4k` is 4096, `4ki` is 4000. Raises ValueError."""
    matched = re.fullmatch(r"(\d{1,15})([kmgtp]?)(i?)b?", text.strip().lower())
    if matched is None or (matched[3] and not matched[2]):
        raise ValueError(f"{text!r} is no size: 4096, 4k, 16m, 1g")
    return int(matched[1]) * (1000 if matched[3] else KIB) ** ("kmgtp".find(matched[2]) + 1 if matched[2] else 0)


def fio_seconds(text: str, default_s: float = 1.0) -> float:
    """A time in fio's words: `60`, `10s`, `500ms`; `default_s` is a number's unit. Raises ValueError."""
    units = {"": default_s, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
    matched = re.fullmatch(r"(\d{1,12})(d|h|m|s|sec|ms|msec|us|usec)?", text.strip().lower())
    if matched is None:
        raise ValueError(f"{text!r} is no time: 60, 10s, 500ms")
    return int(matched[1]) * units[(matched[2] or "").replace("sec", "s")]
