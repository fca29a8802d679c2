"""The change-point detector's answers, kept in the cache: importing it takes longer than the rest of a trend."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeGuard, cast

from fsjoule.errors import FsjouleError
from fsjoule.host.files import write_file
from fsjoule.host.paths import cache_folder
from fsjoule.statistics import finder as detection
from fsjoule.statistics import memory
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.ratios import Floats

_FOLDER: Final = "change-points"
_MOST_KEPT: Final = 20_000


class RememberedFinder:
    """Finds the same as `finder`, but asks it only about new values."""

    def __init__(self, finder: RupturesFinder, known: dict[str, Any]) -> None:
        self._finder = finder
        self.known = known
        self.asked: dict[str, tuple[int, ...]] = {}

    def find(self, values: Floats, level: int = memory.LEVEL_NIGHTS) -> tuple[int, ...]:
        if len(values) < 2 * self._finder.least_points:
            return ()
        key = hashlib.blake2b(values.tobytes() + bytes([level]), digest_size=12).hexdigest()
        kept = self.known.get(key)
        starts = tuple(kept) if _makes_sense(kept, len(values)) else self._finder.find(values, level)
        self.asked[key] = starts
        return starts


@contextmanager
def remembered(finder: RupturesFinder) -> Generator[RememberedFinder]:
    """The finder with its earlier answers; new ones are kept. It works without a usable cache."""
    try:
        file: Path | None = cache_folder(_FOLDER) / f"{_method(finder)}.json"
    except FsjouleError:
        file = None
    remembering = RememberedFinder(finder, _read(file) if file else {})
    yield remembering
    if file and remembering.asked.keys() - remembering.known.keys():
        older = [each for each in remembering.known.items() if each[0] not in remembering.asked]
        kept = dict([*older, *remembering.asked.items()][-_MOST_KEPT:])
        with suppress(OSError):
            write_file(file, json.dumps(kept).encode())


def _method(finder: RupturesFinder) -> str:
    """A hash of the detector, its parameters and its libraries: each has its own answers."""
    code = [Path(str(each.__file__)).read_text(encoding="utf-8") for each in (detection, memory)]
    parts = (repr(finder), *code, version("ruptures"), version("scipy"))
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()


def _read(file: Path) -> dict[str, Any]:
    """The kept answers; empty if the file is absent or damaged."""
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}


def _makes_sense(starts: Any, count: int) -> TypeGuard[list[int]]:  # noqa: ANN401 - a cache may contain anything
    """Whether this can be an answer about `count` values."""
    try:
        return all(type(after) is int and before < after for before, after in pairwise([0, *starts, count]))
    except TypeError:
        return False
