"""Removes old runs from an object store, and archives in whose place newer ones have come.

A newer archive has all that an older one of its run has, so no push relies on those that go. A reader may: they stay
for a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from fsjoule.store.folder import RUN_NAME
from fsjoule.store.objects.archives import Archive, listed_archives
from fsjoule.store.objects.bucket import Bucket

# Nobody reads one archive for as long.
GRACE: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was removed, or would be: whole runs, and `superseded` archives of runs that stay; `bytes` of both."""

    runs: tuple[str, ...]
    kept_runs: int
    superseded: int
    bytes: int


def prune(bucket: Bucket, keep: timedelta, *, remove: bool) -> PruneReport:
    """Remove runs that began longer than `keep` ago, and superseded archives that are older than a day.

    Without `remove` nothing is changed. Raises ObjectStoreError if the server fails or refuses.
    """
    now = datetime.now(UTC)
    by_run = listed_archives(bucket)
    old = {name for name, archives in by_run.items() if _began(archives[-1]) < now - keep}
    superseded = [
        archive
        for name in by_run.keys() - old
        for archive in by_run[name][:-1]
        if by_run[name][-1].written < now - GRACE
    ]
    removed = [archive for name in sorted(old) for archive in by_run[name]] + superseded
    if remove:
        bucket.delete(archive.key for archive in removed)
    size_bytes = sum(archive.size_bytes for archive in removed)
    return PruneReport(tuple(sorted(old)), len(by_run) - len(old), len(superseded), size_bytes)


def _began(archive: Archive) -> datetime:
    """When a run began, by its name. A run with an impossible time began when it was sent."""
    match = RUN_NAME.fullmatch(archive.name)
    try:
        return datetime.strptime(match[1] if match else "", "%Y%m%dT%H%M%S%z")
    except ValueError:
        return archive.written
