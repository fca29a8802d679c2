"""The benchmark of "File System Benchmarks: UDF, Btrfs, NILFS, ext4" (Berger, 2016).

Each test mounts before and unmounts after; operation and unmount are timed separately. Our own choices: the files are a
halving series, twice (20 files, the largest a quarter of all); fragmenting fills directories with sixteen files of one
size and removes the oldest directory for every two new ones.
"""

from __future__ import annotations

from typing import Final

from fsjoule.model import MIB, TimedKind, TimedWorkload
from fsjoule.suites.suite import Suite

SOURCE: Final = "Berger: File System Benchmarks: UDF, Btrfs, NILFS, ext4, 2016"
FULL: Final = 0.75

SUITE: Final = Suite(
    "home-usage-2016",
    "writing, hashing, fragmenting and removing files, and the unmount after each",
    (
        TimedWorkload(TimedKind.WRITE_FILES, 1024 * MIB),
        TimedWorkload(TimedKind.HASH_FILES, 1024 * MIB),
        TimedWorkload(TimedKind.FRAGMENT, fill=FULL),
        TimedWorkload(TimedKind.REMOVE, fill=FULL),
    ),
    source=SOURCE,
    filesystems=("udf", "btrfs", "nilfs2", "ext4"),
    published_repeat=9,
    remarks=(
        "The publication kept 3 of 9 repetitions of nilfs2: in the others no space was left on the device.",
        "Every test begins with a freshly mounted filesystem and an empty page cache.",
    ),
)
