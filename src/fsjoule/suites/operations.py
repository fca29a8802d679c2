"""Everything about a filesystem that is not fio: boot, mkfs, mount, unmount, fsck, and a copy from memory."""

from __future__ import annotations

from typing import Final

from fsjoule.model import MIB, TimedKind, TimedWorkload, Workload

TITLE: Final = "boot, mkfs, mount, unmount, fsck, a copy of 16 MiB"

WORKLOADS: Final[tuple[Workload, ...]] = (
    *(TimedWorkload(kind) for kind in TimedKind if kind is not TimedKind.COPY),
    TimedWorkload(TimedKind.COPY, 16 * MIB),
)
