"""The operations that usage profiles are made of (docs/advice.md): I/O with and without fsync, and small files.

A write that is followed by an fsync is measured as such, `fsync1`, because a filesystem does then what it does at no
other time. Power cuts are in `elc2015/power-loss`, the check in `operations`.
"""

from __future__ import annotations

from typing import Final

from fsjoule.model import KIB, MIB, PURE_PATTERNS, FioWorkload, TimedKind, TimedWorkload
from fsjoule.suites.suite import Suite

BLOCK_SIZES: Final = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
_MOVED: Final = 16 * MIB
# Enough for a p99, where blocks are small.
_FSYNCS: Final = 256
_SMALL_FILES: Final = 20 * KIB

SUITE: Final = Suite(
    "advice",
    "what usage profiles are made of: four I/O patterns at 4 KiB to 1 MiB, fsyncs, small files",
    (
        *(FioWorkload(pattern, block, _MOVED) for block in BLOCK_SIZES for pattern in PURE_PATTERNS),
        *(
            FioWorkload(pattern, block, min(_FSYNCS * block, _MOVED), fsync_every=1)
            for block in BLOCK_SIZES
            for pattern in PURE_PATTERNS
            if pattern.writes
        ),
        TimedWorkload(TimedKind.WRITE_FILES, _SMALL_FILES),
    ),
    filesystems=("ext4", "btrfs", "f2fs"),
    repeat=8,
)
