"""Programs that make filesystems, cut off from what differs between two runs of them: `images/steady/steady.c`.

Their own options for reproducible images (SOURCE_DATE_EPOCH and the like) do not go far enough in the versions of
Debian 12: mkfs.btrfs takes the numbers of files from the host, mkfs.xfs the time, all of them the order of a folder.

The entry of stage `steady` holds the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fsjoule.host.cache.libraries import shared_library
from fsjoule.host.cache.stages import Progress
from fsjoule.host.paths import project_dir

# The time of everything on a card, in seconds of the epoch: 2026-01-01.
IMAGE_TIME_S: Final = 1_767_225_600


def steady_source() -> str:
    """The library's source: what images are made from, beside files and options."""
    return _source().read_text(encoding="utf-8")


def steady_environment(*, progress: Progress) -> Mapping[str, str]:
    """What a program that makes a filesystem is to find in its environment; the library is built if it is not cached.

    Raises MissingToolError if the C compiler is missing, LabError if the build fails.
    """
    library = shared_library(_source(), "steady", progress=progress)
    return {
        "LD_PRELOAD": str(library),
        "FSJOULE_STEADY_TIME": str(IMAGE_TIME_S),
        "SOURCE_DATE_EPOCH": str(IMAGE_TIME_S),
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def _source() -> Path:
    return project_dir() / "images" / "steady" / "steady.c"
