"""The runs below an address: their manifests, and objects by name.

A manifest names a run's files, and the object that each of them is in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, with_config

from fsjoule.errors import ObjectStoreError, ResultError
from fsjoule.host.inside import DOCUMENT_BYTES, MIB, TRACE_BYTES, wrong_name
from fsjoule.host.json_text import json_text
from fsjoule.store.folder import CHECKSUMS_FILE, MEASUREMENT_FILE, MEASUREMENTS_FOLDER, RUN_FILE
from fsjoule.store.objects.address import is_run_name
from fsjoule.store.objects.bucket import Bucket, StoredObject
from fsjoule.store.schemas import STRICT, Kind, decode

SCHEMA: Final = "fsjoule.stored-run/1"
RUNS: Final = "runs"
OBJECTS: Final = "objects"
_SUFFIX: Final = ".json"
_MOST_MANIFEST_BYTES: Final = 2 * DOCUMENT_BYTES
PAGE: Final = "report.html"  # made from the other files, by any version of fsjoule
# Files below this size are kept together: a request takes as long as these bytes, and costs more than they do.
SMALL_BYTES: Final = 64 * 1024
BUNDLE_BYTES: Final = 4 * MIB
MOST_FILES: Final = 1 << 16
_MOST_RUN_BYTES: Final = 1 << 36
_MOST_NAMES: Final = 3  # measurements/<name>/<file>
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_DAMAGED: Final = "push the run again from a folder that has it: fsjoule results push --again"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a run: the `bytes` from offset `at` of the object `object`, with the SHA-256 `sha256`."""

    sha256: str
    bytes: int
    object: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run's files by their paths in its folder. `complete` is false as long as the run can be resumed."""

    complete: bool
    files: Mapping[str, StoredFile]
    schema: str = SCHEMA

    @property
    def size_bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    def objects(self, files: Iterable[str] | None = None) -> dict[str, int]:
        """The objects that these files (all of the run) are in, and the sizes they have at least."""
        found: dict[str, int] = {}
        for path in self.files if files is None else files:
            file = self.files[path]
            found[file.object] = max(found.get(file.object, 0), file.at + file.bytes)
        return found

    def documents(self) -> list[str]:
        """The files that an index is made from."""
        endings = (f"/{MEASUREMENT_FILE}", f"/{CHECKSUMS_FILE}")
        return [path for path in self.files if path == RUN_FILE or path.endswith(endings)]


class FolderState(StrEnum):
    """What a run folder is to the run in the store."""

    SAME = "same"
    NEWER = "newer"  # it has all that the store has, and more
    OLDER = "older"
    OTHER = "other"  # each has something that the other has not, or has otherwise


def folder_state(stored: StoredRun, files: Mapping[str, str], *, complete: bool) -> FolderState:
    """What a folder with these `files` (digest by path) is to a run in the store.

    Measurements never change. Documents beside run.json may be added or written again as long as the run goes on;
    run.json of a complete run is its last. The page does not count: it can be made again from the others.
    """
    there = {path: file.sha256 for path, file in stored.files.items() if path != PAGE}
    here = {path: digest for path, digest in files.items() if path != PAGE}
    differing = {path for path in there.keys() & here.keys() if there[path] != here[path]}
    if any(path.startswith(f"{MEASUREMENTS_FOLDER}/") for path in differing):
        return FolderState.OTHER
    here_only, there_only = here.keys() - there.keys(), there.keys() - here.keys()
    if RUN_FILE in differing and stored.complete and (complete or here_only):
        return FolderState.OTHER
    if here_only and there_only:
        return FolderState.OTHER
    if there_only:
        return FolderState.OLDER
    if here_only or (differing and (complete or not stored.complete)):
        return FolderState.NEWER
    return FolderState.OLDER if differing else FolderState.SAME


def encode_manifest(run: StoredRun) -> bytes:
    return json_text(_MANIFEST.adapter, run, indent=None)


def decode_manifest(content: bytes, name: str) -> StoredRun:
    """Read the output of `encode_manifest`. Raises ResultError if it is damaged, or names a file that no run has."""
    try:
        return decode(_MANIFEST, content, SCHEMA, Path(name))
    except ResultError as error:
        # A Path has lost a slash of the address.
        raise ResultError(error.what.replace(str(Path(name)), name), hint=_DAMAGED) from error


def _check(run: StoredRun) -> None:
    folders = {"/".join(names[:i]) for path in run.files if (names := path.split("/")) for i in range(1, len(names))}
    for path, file in run.files.items():
        names = path.split("/")
        if len(names) > _MOST_NAMES or any(wrong_name(name) for name in names) or path in folders:
            raise ValueError(f"files: {path[:200]!r} is not the name of a run's file")
        if not (_DIGEST.fullmatch(file.sha256) and _DIGEST.fullmatch(file.object)):
            raise ValueError(f"files: {path[:200]!r} has a digest that is not a SHA-256 in 64 hexadecimal digits")
        if not (0 <= file.bytes <= TRACE_BYTES and 0 <= file.at <= BUNDLE_BYTES):
            raise ValueError(f"files: {path[:200]!r} has an impossible size")
    if RUN_FILE not in run.files:
        raise ValueError(f"files: there is no {RUN_FILE}")
    if run.size_bytes > _MOST_RUN_BYTES:
        raise ValueError("files: they are too large for a run folder")


_MANIFEST: Final = Kind(
    TypeAdapter(with_config(STRICT)(StoredRun)), _check, at_most=_MOST_MANIFEST_BYTES, most_entries=MOST_FILES
)


@dataclass(frozen=True, slots=True)
class Listing:
    """A run in the store: its name, and its manifest's version and size."""

    name: str
    version: str
    size_bytes: int
    written: datetime


def run_key(name: str) -> str:
    return f"{RUNS}/{name}{_SUFFIX}"


def object_key(digest: str) -> str:
    return f"{OBJECTS}/{digest[:2]}/{digest}"


def digest_of(key: str) -> str:
    return key.rpartition("/")[2]


def listed_runs(bucket: Bucket) -> list[Listing]:
    """All runs, oldest first; other objects are not listed."""
    return sorted(_listed(bucket), key=lambda run: run.name)


def run_listing(bucket: Bucket, name: str) -> Listing:
    """One run, without its manifest. Raises ResultError if the store has no such run."""
    found = bucket.find(run_key(name))
    if found is None:
        known_manifest(bucket, name)  # which also tells an absent bucket from an absent run
        return run_listing(bucket, name)  # sent meanwhile
    return Listing(name, found.version, found.size_bytes, found.written)


def _listed(bucket: Bucket) -> Iterator[Listing]:
    for found in bucket.list(RUNS):
        name = found.key.removeprefix(f"{RUNS}/").removesuffix(_SUFFIX)
        if found.key == run_key(name) and is_run_name(name):
            yield Listing(name, found.version, found.size_bytes, found.written)


def listed_objects(bucket: Bucket) -> Iterator[StoredObject]:
    """All objects with a file's content; other objects are not listed."""
    return (found for found in bucket.list(OBJECTS) if found.key == object_key(digest_of(found.key)))


def read_manifest(bucket: Bucket, name: str) -> tuple[StoredRun, str] | None:
    """A run's manifest and its version; None if the store has no such run. Raises ResultError if it is damaged."""
    found = bucket.get(run_key(name), at_most=_MOST_MANIFEST_BYTES)
    if found is None:
        return None
    content, version = found
    return decode_manifest(content, bucket.named(run_key(name))), version


def known_manifest(bucket: Bucket, name: str) -> tuple[StoredRun, str]:
    """Like `read_manifest`. Raises ResultError if the store has no such run."""
    found = read_manifest(bucket, name)
    if found is None:
        raise ResultError(
            f"there is no run {name} in {bucket.address.of('')}", hint="fsjoule results list shows what is there"
        )
    return found


def write_manifest(bucket: Bucket, name: str, run: StoredRun, version: str | None) -> bool:
    """Write a manifest in place of one of this version (None: of none); whether no other was there."""
    content = encode_manifest(run)
    if len(content) > _MOST_MANIFEST_BYTES:
        raise ObjectStoreError(f"{name} has too many files for an object store", hint="keep it as a folder")
    return bucket.put_if(run_key(name), content, version=version)
