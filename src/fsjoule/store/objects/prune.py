"""Removes old runs from an object store, and objects that belong to no run.

Runs go first: a reader finds a run whole, or not at all. An object stays as long as it is young or a push has named it,
because a push under way has objects that no manifest names yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from fsjoule.errors import FsjouleError, ObjectStoreError, also
from fsjoule.store.folder import RUN_NAME
from fsjoule.store.objects import prune_mark
from fsjoule.store.objects.bucket import Bucket
from fsjoule.store.objects.intents import listed_intents, read_intent
from fsjoule.store.objects.prune_mark import PruneMark
from fsjoule.store.objects.requests import in_parallel
from fsjoule.store.objects.runs import Listing, digest_of, listed_objects, listed_runs, read_manifest, run_key

# No push takes as long for one run.
GRACE: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, or would be. `young` objects belong to no run yet, but may to a push under way."""

    runs: tuple[str, ...]
    kept_runs: int
    objects: int
    bytes: int
    young: int


def prune(bucket: Bucket, keep: timedelta, *, remove: bool, grace: timedelta = GRACE) -> Pruned:
    """Remove runs that began longer than `keep` ago, and objects of no run that are older than `grace`.

    Without `remove` nothing is changed. `grace` is that of objects; a push's intent always has a day. A run that is
    pushed or read meanwhile loses nothing. Raises ResultError, before anything is removed, if a manifest is damaged:
    its objects cannot be told from those of no run.
    """
    if not remove:
        return _prune(bucket, keep, grace, None)
    mark = prune_mark.begin(bucket)
    try:
        done = _prune(bucket, keep, grace, mark)
    except FsjouleError as error:
        with also(error, "saying that nothing more is removed"):
            prune_mark.end(bucket, mark)
        raise
    prune_mark.end(bucket, mark)
    return done


def _prune(bucket: Bucket, keep: timedelta, grace: timedelta, mark: PruneMark | None) -> Pruned:
    now = datetime.now(UTC)
    # Intents before runs: one that is gone by now has its run, which is listed next.
    intents = list(listed_intents(bucket))
    stale = [found.key for found in intents if found.written < now - GRACE]
    needed = set[str]()
    for named in in_parallel(lambda found: read_intent(bucket, found.key), [i for i in intents if i.key not in stale]):
        needed.update(named)
    runs = listed_runs(bucket)
    old = [run.name for run in runs if _began(run) < now - keep]
    kept = [run.name for run in runs if _began(run) >= now - keep]
    for found in in_parallel(lambda name: read_manifest(bucket, name), kept):
        needed.update(() if found is None else found[0].objects())
    unneeded = [found for found in listed_objects(bucket) if digest_of(found.key) not in needed]
    doomed = [found for found in unneeded if found.written < now - grace]
    if mark is not None:
        bucket.delete(_in_time(bucket, (run_key(name) for name in old), mark))
        bucket.delete(_in_time(bucket, (found.key for found in doomed), mark))
        bucket.delete(_in_time(bucket, stale, mark))
    size = sum(found.size_bytes for found in doomed)
    return Pruned(tuple(old), len(kept), len(doomed), size, len(unneeded) - len(doomed))


def _began(run: Listing) -> datetime:
    """When a run began, by its name. A run with an impossible time began when it was sent."""
    found = RUN_NAME.fullmatch(run.name)
    try:
        return datetime.strptime(found[1] if found else "", "%Y%m%dT%H%M%S%z")
    except ValueError:
        return run.written


def _in_time(bucket: Bucket, keys: Iterable[str], mark: PruneMark) -> Iterator[str]:
    """The keys, as long as pushes know that objects are being removed."""
    for key in keys:
        if not mark.in_time:
            raise ObjectStoreError(f"{bucket.address}: there was more to remove than there was time", hint="repeat it")
        yield key
