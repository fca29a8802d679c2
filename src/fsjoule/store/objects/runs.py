"""The runs below an address: their manifests and objects by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fsjoule.errors import ObjectStoreError, ResultError
from fsjoule.host.inside import DOCUMENT_BYTES
from fsjoule.store.objects.address import is_run_name
from fsjoule.store.objects.bucket import Bucket, Found
from fsjoule.store.objects.manifest import StoredRun, decode_manifest, encode_manifest

RUNS: Final = "runs"
OBJECTS: Final = "objects"
_SUFFIX: Final = ".json"
_MOST_BYTES: Final = 2 * DOCUMENT_BYTES


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


def listed_objects(bucket: Bucket) -> Iterator[Found]:
    """All objects with a file's content; other objects are not listed."""
    return (found for found in bucket.list(OBJECTS) if found.key == object_key(digest_of(found.key)))


def read_manifest(bucket: Bucket, name: str) -> tuple[StoredRun, str] | None:
    """A run's manifest and its version; None if the store has no such run. Raises ResultError if it is damaged."""
    found = bucket.get(run_key(name), at_most=_MOST_BYTES)
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
    if len(content) > _MOST_BYTES:
        raise ObjectStoreError(f"{name} has too many files for an object store", hint="keep it as a folder")
    return bucket.put_if(run_key(name), content, version=version)
