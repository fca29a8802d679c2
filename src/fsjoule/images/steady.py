"""Programs that make filesystems, cut off from what differs between two runs of them: `images/steady/steady.c`.

Their own options for reproducible images (SOURCE_DATE_EPOCH and the like) do not go far enough in the versions of
Debian 12: mkfs.btrfs takes the numbers of files from the host, mkfs.xfs the time, all of them the order of a folder.

The entry of stage `steady` holds the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fsjoule.host import process
from fsjoule.host.cache.stages import Progress, build_once, cache_key
from fsjoule.host.paths import project_dir

# The time of everything on a card, in seconds of the epoch: 2026-01-01.
IMAGE_TIME_S: Final = 1_767_225_600

_FLAGS: Final = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
_LIBRARY: Final = "steady.so"
_TIMEOUT_S: Final = 120.0


def steady_source() -> str:
    """The library's source: what images are made from, beside files and options."""
    return _source().read_text(encoding="utf-8")


def steady_environment(*, progress: Progress) -> Mapping[str, str]:
    """What a program that makes a filesystem is to find in its environment; the library is built if it is not cached.

    Raises MissingToolError if the C compiler is missing, LabError if the build fails.
    """
    compiler = process.run(["cc", "--version"], timeout_s=30.0).stdout.decode(errors="replace")
    key = cache_key({"source": steady_source(), "flags": _FLAGS, "compiler": compiler})

    def build(folder: Path) -> None:
        process.run(["cc", *_FLAGS, "-o", folder / _LIBRARY, _source(), "-ldl"], timeout_s=_TIMEOUT_S)

    library = build_once("steady", "host", key, build, progress=progress) / _LIBRARY
    return {
        "LD_PRELOAD": str(library),
        "FSJOULE_STEADY_TIME": str(IMAGE_TIME_S),
        "SOURCE_DATE_EPOCH": str(IMAGE_TIME_S),
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def _source() -> Path:
    return project_dir() / "images" / "steady" / "steady.c"
