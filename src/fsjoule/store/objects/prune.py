"""Removes old runs from an object store, and objects that belong to no run, without hurting a push under way.

Runs go first: a reader finds a run whole, or not at all. An object stays as long as it is young or a push has named it,
because a push under way has objects that no manifest names yet.

An object that a push has found may be removed before the push has written the manifest that refers to it. So a push
first names its objects (its intent, below `pushes/`), then reads the mark of removals, looks for the objects, sends the
missing ones, and reads the mark again before it writes the manifest. If the mark is another then, a removal has
overlapped, and the push looks once more. A removal that begins later sees what the push has named. An intent's key has
a random part, so that pushes of one run do not overwrite each other's. A push leaves its intent behind, because it may
not be allowed to remove anything; a removal takes it away when no push can need it any more.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import TypeAdapter, with_config

from fsjoule.errors import FsjouleError, ObjectStoreError, ResultError, also
from fsjoule.host.inside import MIB
from fsjoule.host.json_text import json_text
from fsjoule.store.folder import RUN_NAME
from fsjoule.store.objects.bucket import Bucket, StoredObject, in_parallel
from fsjoule.store.objects.runs import Listing, digest_of, listed_objects, listed_runs, read_manifest, run_key
from fsjoule.store.schemas import STRICT, Kind

# No push takes as long for one run.
GRACE: Final = timedelta(days=1)
_MARK_KEY: Final = "prune.json"
# A removal ends itself before this time is over. One that was killed is over then.
LONGEST: Final = timedelta(minutes=15)
_SKEW: Final = timedelta(minutes=5)  # clocks differ
_POLL_S: Final = 2.0
PUSHES: Final = "pushes"
_MOST_PUSH_BYTES: Final = 8 * MIB
_PUSH: Final = re.compile(rf"{PUSHES}/[A-Za-z0-9_.-]+\.json")


@dataclass(frozen=True, slots=True)
class PruneMark:
    """`until_utc` is the end of a removal that goes on, empty after its end."""

    by: str
    id: str
    until_utc: str

    @property
    def going_on(self) -> bool:
        """Whether objects may be being removed, for somebody else."""
        if not self.until_utc:
            return False
        left = datetime.fromisoformat(self.until_utc) - datetime.now(UTC)
        # No removal has more time left: a clock was wrong, and nobody may wait for it.
        return -_SKEW < left <= LONGEST + _SKEW

    @property
    def in_time(self) -> bool:
        """Whether the removal itself may go on. One request more takes less than the skew of clocks."""
        return datetime.now(UTC) < datetime.fromisoformat(self.until_utc)


def read_mark(bucket: Bucket) -> tuple[PruneMark, str] | None:
    """The mark and its version; None if nothing was ever removed."""
    found = bucket.get(_MARK_KEY, at_most=MIB)
    if found is None:
        return None
    content, version = found
    try:
        return _MARK.read(_MARK.parse(content)[1]), version
    except ValueError as error:
        raise ResultError(f"{bucket.named(_MARK_KEY)} is damaged:{error}", hint="remove that object") from error


def idle_version(bucket: Bucket, say: Callable[[str], None]) -> str:
    """The mark's version as soon as nothing is being removed; empty if nothing ever was."""
    told = False
    while (found := read_mark(bucket)) is not None and found[0].going_on:
        if not told:
            say(f"waiting for {found[0].by}, which removes objects until {found[0].until_utc} at the latest")
            told = True
        time.sleep(_POLL_S)
    return "" if found is None else found[1]


def begin_removal(bucket: Bucket) -> PruneMark:
    """Say that a removal begins. Raises ObjectStoreError if another goes on."""
    found = read_mark(bucket)
    if found is not None and found[0].going_on:
        raise _busy(bucket, found[0].by)
    until = (datetime.now(UTC) + LONGEST).isoformat(timespec="seconds")
    mark = PruneMark(f"{socket.gethostname()}, process {os.getpid()}", secrets.token_hex(8), until)
    if not bucket.put_if(_MARK_KEY, json_text(_MARK.adapter, mark), version=None if found is None else found[1]):
        raise _busy(bucket, "another process")
    return mark


def end_removal(bucket: Bucket, mark: PruneMark) -> None:
    """Say that a removal has ended."""
    bucket.put(_MARK_KEY, json_text(_MARK.adapter, PruneMark(mark.by, mark.id, "")))


def _busy(bucket: Bucket, by: str) -> ObjectStoreError:
    hint = f"wait for it: it ends within {(LONGEST + _SKEW).total_seconds() / 60:.0f} minutes, also if it was killed"
    return ObjectStoreError(f"{by} is removing objects from {bucket.address}", hint=hint)


def _check(mark: PruneMark) -> None:
    if mark.until_utc and datetime.fromisoformat(mark.until_utc).tzinfo is None:
        raise ValueError("until_utc: it has no time zone")


_MARK: Final = Kind(TypeAdapter(with_config(STRICT)(PruneMark)), _check, at_most=MIB)


@dataclass(frozen=True, slots=True)
class _Intent:
    objects: tuple[str, ...]


def write_intent(bucket: Bucket, name: str, objects: Collection[str]) -> None:
    """Name the objects that the run `name` will have."""
    content = json_text(_INTENT.adapter, _Intent(tuple(sorted(objects))))
    bucket.put(f"{PUSHES}/{name}-{secrets.token_hex(4)}.json", content)


def listed_intents(bucket: Bucket) -> Iterator[StoredObject]:
    return (found for found in bucket.list(PUSHES) if _PUSH.fullmatch(found.key))


def read_intent(bucket: Bucket, key: str) -> tuple[str, ...]:
    """The objects that a push has named; none if it is gone or damaged, as that of a push that was cut short."""
    found = bucket.get(key, at_most=_MOST_PUSH_BYTES)
    try:
        return () if found is None else _INTENT.read(_INTENT.parse(found[0])[1]).objects
    except ValueError:
        return ()


_INTENT: Final = Kind(
    TypeAdapter(with_config(STRICT)(_Intent)), lambda _: None, at_most=_MOST_PUSH_BYTES, most_entries=1 << 17
)


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was removed, or would be. `young` objects belong to no run yet, but may to a push under way."""

    runs: tuple[str, ...]
    kept_runs: int
    objects: int
    bytes: int
    young: int


def prune(bucket: Bucket, keep: timedelta, *, remove: bool, grace: timedelta = GRACE) -> PruneReport:
    """Remove runs that began longer than `keep` ago, and objects of no run that are older than `grace`.

    Without `remove` nothing is changed. `grace` is that of objects; a push's intent always has a day. A run that is
    pushed or read meanwhile loses nothing. Raises ResultError, before anything is removed, if a manifest is damaged:
    its objects cannot be told from those of no run.
    """
    if not remove:
        return _prune(bucket, keep, grace, None)
    mark = begin_removal(bucket)
    try:
        done = _prune(bucket, keep, grace, mark)
    except FsjouleError as error:
        with also(error, "saying that nothing more is removed"):
            end_removal(bucket, mark)
        raise
    end_removal(bucket, mark)
    return done


def _prune(bucket: Bucket, keep: timedelta, grace: timedelta, mark: PruneMark | None) -> PruneReport:
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
    return PruneReport(tuple(old), len(kept), len(doomed), size, len(unneeded) - len(doomed))


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
