"""The benchmark of "BTRFS vs Ext4: Filesystems Impact on Energy Consumption of eMMC-Based Embedded Computers".

Jacomelli and Bruschi give pattern, block size, size (500 MB, which fio reads as 500 MiB) and one thread. They do not
give ioengine, depth, direct and fsync: we take fio's defaults (psync, 1, buffered), with `end_fsync` so that buffered
writes reach the card. They ran it once, on two filesystems; the second suite does the work that they left for later.
"""

from __future__ import annotations

from typing import Final

from fsjoule.model import KIB, MIB, PURE_PATTERNS, FioWorkload, Workload
from fsjoule.suites.suite import Suite

SOURCE: Final = (
    "Jacomelli, Bruschi: BTRFS vs Ext4: Filesystems Impact on Energy Consumption of eMMC-Based Embedded Computers, 2025"
)

_WORKLOADS: Final[tuple[Workload, ...]] = tuple(
    FioWorkload(pattern, block_kib * KIB, 500 * MIB) for block_kib in (16, 32, 64) for pattern in PURE_PATTERNS
)

SUITE: Final = Suite(
    "energy-emmc-2025", "four I/O patterns at 16, 32 and 64 KiB, 500 MiB each", _WORKLOADS, source=SOURCE
)
EXTENDED: Final = Suite(
    "energy-emmc-extended",
    "the same on all filesystems and btrfs variants, five boots each",
    _WORKLOADS,
    source=SOURCE,
    filesystems=(
        *("ext4", "btrfs", "f2fs", "xfs", "nilfs2", "udf", "vfat"),
        *("btrfs:zstd", "btrfs:lzo", "btrfs:nodatacow", "btrfs:single", "btrfs:ssd", "ext4:nojournal"),
    ),
    repeat=5,
    published_repeat=5,
)
