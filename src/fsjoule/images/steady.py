"""Environment in which programs that make filesystems give the same result each time: `images/steady/steady.c`.

Their own options for reproducible images (SOURCE_DATE_EPOCH and the like) do not suffice in Debian 12: mkfs.btrfs takes
inode numbers from the host, mkfs.xfs takes the time, and all of them take the order of a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fsjoule.host.cache.libraries import shared_library
from fsjoule.host.paths import project_dir

# The time of everything on a card, in seconds of the epoch: 2026-01-01.
IMAGE_TIME_S: Final = 1_767_225_600


def steady_source() -> str:
    """The library's source, which goes into the keys of images."""
    return _source().read_text(encoding="utf-8")


def steady_environment() -> Mapping[str, str]:
    """The environment for a program that makes a filesystem. The library is built unless it is cached.

    Raises MissingToolError without a C compiler, HostError if the build fails.
    """
    library = shared_library(_source(), "steady")
    return {
        "LD_PRELOAD": str(library),
        "FSJOULE_STEADY_TIME": str(IMAGE_TIME_S),
        "SOURCE_DATE_EPOCH": str(IMAGE_TIME_S),
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def _source() -> Path:
    return project_dir() / "images" / "steady" / "steady.c"
