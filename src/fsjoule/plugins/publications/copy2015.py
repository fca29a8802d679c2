"""The benchmark of "Which is Faster: Btrfs or ext4?" (2015): files copied from an ext4 filesystem.

Its three files have 1.8, 1.0 and 24 GB. Ours have random bytes and are on the board's own root filesystem, on the same
card. A copy begins with an empty page cache and ends when it has reached the card. For `hdparm -t` fio reads a file
sequentially in blocks of 2 MiB; `hdparm -T` has no counterpart.
"""

from __future__ import annotations

from typing import Final

from fsjoule.model import MIB, FioWorkload, IoPattern, TimedKind, TimedWorkload
from fsjoule.suites.published.publication import Publication
from fsjoule.suites.suite import Suite

_SOURCE: Final = "Which is Faster: Btrfs or ext4?, 2015"
_SIZES_MIB: Final = (1024, 1843, 24576)

SUITE: Final = Suite(
    "copy-2015",
    "files of 1.0, 1.8 and 24 GB copied from ext4",
    (
        *(TimedWorkload(TimedKind.COPY, size * MIB, from_root=True) for size in _SIZES_MIB),
        FioWorkload(IoPattern.READ, 2 * MIB, 1024 * MIB),
    ),
    source=_SOURCE,
    published_repeat=3,
    remarks=(
        "The publication suspects the page cache in its own 1.0 GB figure.",
        "Here caches are dropped before a copy, and its data is on the card when it ends.",
        "Its `hdparm -t` reads the raw device; here fio reads a file of the filesystem in blocks of 2 MiB.",
        "Its `hdparm -T`, reads from the page cache, is not measured: it says nothing of storage or filesystem.",
        "Its figures are pictures: there are no numbers to compare with.",
    ),
)


PUBLICATION: Final = Publication(
    "copy-2015",
    _SOURCE,
    remarks=(
        "Its numbers are only in pictures: they cannot be compared, and its statements cannot be tested.",
        "It gives the mean of three runs of `time`, real, and suspects the page cache in its own figure of 1.0 GB.",
    ),
)
