"""A usage profile as parts: a workload of a suite, and how much of it there is in a day."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fsjoule.model import KIB, FioWorkload, IoPattern
from fsjoule.model.workload import SERIES_FILES
from fsjoule.suites.profile import Traffic, UsageProfile


class UsageKind(StrEnum):
    READ = "reads"
    WRITE = "writes"
    FSYNC = "writes with fsync"
    FILES = "small files"


# The workloads of suites that are no fio jobs, by their slugs.
SMALL_FILES: Final = "write_files-20k"
POWER_LOSS: Final = "power-loss-async"
FSCK: Final = "fsck"
POWER_LOSS_SUITE: Final = "elc2015/power-loss"
SUITE: Final = "advice"


@dataclass(frozen=True, slots=True)
class UsagePart:
    """A workload by its slug, and its amount: MiB a day of a fio job, times a day of an operation."""

    slug: str
    kind: UsageKind
    per_day: float


def parts_of(profile: UsageProfile) -> tuple[UsagePart, ...]:
    """The parts of a day with an amount above zero."""
    plain = profile.writes.mib_per_day - profile.fsynced_mib_per_day
    parts = (
        *_traffic(UsageKind.READ, (IoPattern.READ, IoPattern.RANDREAD), profile.reads, profile.reads.mib_per_day),
        *_traffic(UsageKind.WRITE, (IoPattern.WRITE, IoPattern.RANDWRITE), profile.writes, plain),
        *_traffic(
            UsageKind.FSYNC,
            (IoPattern.WRITE, IoPattern.RANDWRITE),
            profile.writes,
            profile.fsynced_mib_per_day,
            fsync=1,
        ),
        UsagePart(SMALL_FILES, UsageKind.FILES, profile.files_per_day / SERIES_FILES),
    )
    return tuple(part for part in parts if part.per_day > 0)


def _traffic(
    kind: UsageKind, patterns: tuple[IoPattern, IoPattern], traffic: Traffic, mib_per_day: float, *, fsync: int = 0
) -> tuple[UsagePart, ...]:
    sequential, at_random = (
        FioWorkload(pattern, traffic.block_kib * KIB, 0, fsync_every=fsync).slug for pattern in patterns
    )
    share = traffic.random_share
    return UsagePart(sequential, kind, (1 - share) * mib_per_day), UsagePart(at_random, kind, share * mib_per_day)
