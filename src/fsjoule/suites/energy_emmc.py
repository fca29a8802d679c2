"""The benchmark of "BTRFS vs Ext4: Filesystems Impact on Energy Consumption of eMMC-Based Embedded Computers".

Jacomelli and Bruschi give pattern, block size, size (500 MB, which fio reads as 500 MiB) and one thread. They do not
give ioengine, depth, direct and fsync: fio's defaults are ours (psync, 1, buffered), with `end_fsync` so that a
buffered write is one to the card.
"""

from __future__ import annotations

from typing import Final

from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Workload

TITLE: Final = "four I/O patterns at 16, 32 and 64 KiB, 500 MiB each"
SOURCE: Final = (
    "Jacomelli, Bruschi: BTRFS vs Ext4: Filesystems Impact on Energy Consumption of eMMC-Based Embedded Computers, 2025"
)

WORKLOADS: Final[tuple[Workload, ...]] = tuple(
    FioWorkload(pattern, block_kib * KIB, 500 * MIB) for block_kib in (16, 32, 64) for pattern in IoPattern
)
