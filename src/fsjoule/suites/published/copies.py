"""Which is Faster: Btrfs or ext4?, 2015: its figures are pictures, without numbers to compare with."""

from __future__ import annotations

from typing import Final

from fsjoule.suites.definitions.copy2015 import SOURCE
from fsjoule.suites.published.publication import Publication

PUBLICATION: Final = Publication(
    "copy-2015",
    SOURCE,
    remarks=(
        "Its numbers are only in pictures: they cannot be compared, and its statements cannot be tested.",
        "It gives the mean of three runs of `time`, real, and suspects the page cache in its own figure of 1.0 GB.",
    ),
)
