"""The archives below an address: which runs there are, what they hold, and how they compare with a folder's files."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Final, cast

from fsjoule.errors import ResultError
from fsjoule.store.archive import ARCHIVE_SUFFIX, MOST_BYTES, PAGE, read_table, run_digest, unpack_run
from fsjoule.store.folder import MEASUREMENTS_FOLDER, RUN_FILE
from fsjoule.store.objects.address import is_run_name
from fsjoule.store.objects.bucket import MIB, Bucket, StoredObject

RUNS: Final = "runs"
_KEY: Final = re.compile(rf"{RUNS}/([^/]+)/(\d{{6}})-(complete|partial)-([0-9a-f]{{64}}){re.escape(ARCHIVE_SUFFIX)}")
# Documents of some hundred measurements; then more at a time.
_FIRST_BYTES: Final = MIB // 4
_MOST_PART_BYTES: Final = 8 * MIB
_AGAIN: Final = "push the run again from a folder that has it: fsjoule results push --again"


@dataclass(frozen=True, slots=True, order=True)
class Archive:
    """A run as it was when it was pushed. Of several the last in order counts: it has most measurements.

    `digest` is `run_digest` of its files; `complete` is false as long as the run can be resumed.
    """

    name: str
    measurements: int
    complete: bool
    written: datetime
    digest: str
    size_bytes: int

    @property
    def key(self) -> str:
        state = "complete" if self.complete else "partial"
        return f"{RUNS}/{self.name}/{self.measurements:06}-{state}-{self.digest}{ARCHIVE_SUFFIX}"


def archive_key(name: str, table: Mapping[str, str], *, complete: bool) -> str:
    """The key of a run with these files."""
    count = len({path.split("/")[1] for path in table if path.startswith(f"{MEASUREMENTS_FOLDER}/")})
    return Archive(name, count, complete, datetime.min, run_digest(table), 0).key  # noqa: DTZ901 - no part of a key


def listed_archives(bucket: Bucket, name: str | None = None) -> dict[str, list[Archive]]:
    """The archives of all runs (or of one) by the runs' names, oldest first; other objects are not listed."""
    archives = filter(None, map(_archive, bucket.list(RUNS if name is None else f"{RUNS}/{name}")))
    by_run: dict[str, list[Archive]] = {}
    for archive in sorted(archives):
        by_run.setdefault(archive.name, []).append(archive)
    return by_run


def listed_runs(bucket: Bucket) -> list[Archive]:
    """The newest archive of each run, oldest run first."""
    return [archives[-1] for archives in listed_archives(bucket).values()]


def newest(bucket: Bucket, name: str) -> Archive:
    """The newest archive of a run. Raises ResultError if the store has no such run."""
    if archives := listed_archives(bucket, name).get(name):
        return archives[-1]
    raise ResultError(
        f"there is no run {name} in {bucket.address.of('')}", hint="fsjoule results list shows what is there"
    )


def table_of(bucket: Bucket, archive: Archive) -> dict[str, str]:
    """The SHA-256 of each file of an archive by its path. Raises ResultError if it is damaged, or gone."""
    return _read(bucket, archive, lambda packed: read_table(packed, archive.name))


def unpack(bucket: Bucket, archive: Archive, into: Path, wanted: Callable[[str], bool]) -> dict[str, str]:
    """Write what is wanted of an archive below the folder `into`, read only as far as needed; returns its table.

    Raises ResultError if it is damaged, or gone; OSError.
    """
    return _read(bucket, archive, lambda packed: unpack_run(packed, archive.name, into, wanted=wanted))


def _read(bucket: Bucket, archive: Archive, read: Callable[[IO[bytes]], dict[str, str]]) -> dict[str, str]:
    try:
        table = read(cast("IO[bytes]", _Object(bucket, archive)))
    except ResultError as error:
        raise ResultError(f"{bucket.named(archive.key)}: {error.what}", hint=error.hint or _AGAIN) from error
    if run_digest(table) != archive.digest:
        raise ResultError(f"{bucket.named(archive.key)}: it has other files than its name says", hint=_AGAIN)
    return table


def _archive(found: StoredObject) -> Archive | None:
    key = _KEY.fullmatch(found.key)
    if key is None or not is_run_name(key[1]):
        return None
    return Archive(key[1], int(key[2]), key[3] == "complete", found.written, key[4], found.size_bytes)


class _Object(io.RawIOBase):
    """An object as a file that is fetched in parts, as far as it is read."""

    def __init__(self, bucket: Bucket, archive: Archive) -> None:
        if archive.size_bytes > MOST_BYTES:
            raise ResultError("its archive is too large for a run folder")
        self._bucket, self._archive = bucket, archive
        self._part, self._start, self._at = b"", 0, 0
        self._next_bytes = _FIRST_BYTES

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        assert whence == io.SEEK_SET, "parts come in order"
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        there = self._part[self._at - self._start :] if self._at >= self._start else b""
        left = self._archive.size_bytes - self._at
        if not there and left > 0:
            there = self._bucket.part(self._archive.key, self._at, min(self._next_bytes, left))
            self._part, self._start = there, self._at
            self._next_bytes = min(2 * self._next_bytes, _MOST_PART_BYTES)
        found = there if size < 0 else there[:size]
        self._at += len(found)
        return found


class FolderState(StrEnum):
    """What a run folder is to the run in the store."""

    SAME = "same"
    NEWER = "newer"  # it has all that the store has, and more
    OLDER = "older"
    OTHER = "other"  # each has something that the other has not, or has otherwise


def compared(
    stored: Mapping[str, str], files: Mapping[str, str], *, were_complete: bool, complete: bool
) -> FolderState:
    """What a folder with these `files` (digest by path) is to a run in the store.

    Measurements never change. Documents beside run.json may be added or written again as long as the run goes on;
    run.json of a complete run is its last, unless it was resumed to measure more. The page does not count: it can be
    made again from the others.
    """
    there = {path: digest for path, digest in stored.items() if path != PAGE}
    here = {path: digest for path, digest in files.items() if path != PAGE}
    differing = {path for path in there.keys() & here.keys() if there[path] != here[path]}
    here_only, there_only = here.keys() - there.keys(), there.keys() - here.keys()
    more = any(map(_is_measured, here_only))
    if any(map(_is_measured, differing)) or (here_only and there_only):
        return FolderState.OTHER
    if RUN_FILE in differing and were_complete and complete and not more and not any(map(_is_measured, there_only)):
        return FolderState.OTHER
    if there_only:
        return FolderState.OLDER
    if here_only or (differing and (complete or not were_complete)):
        return FolderState.NEWER
    return FolderState.OLDER if differing else FolderState.SAME


def _is_measured(path: str) -> bool:
    return path.startswith(f"{MEASUREMENTS_FOLDER}/")
