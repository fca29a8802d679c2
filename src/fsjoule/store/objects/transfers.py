"""Transfers of whole runs: to an object store, out of it, and what is removed from it.

A push sends each run that the store lacks, or has only a part of, as one archive. One that was interrupted has left
nothing of the run that it was sending. Several pushes of one run may meet: each sends an archive of its own, and the
newest counts. A pull brings a run whole, compared with its digests, or not at all.

A newer archive has all that an older one of its run has, so no push relies on those that a prune removes. A reader may:
they stay for a day.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final

from fsjoule.errors import ResultError, StorageError
from fsjoule.host.files import flush_folder
from fsjoule.model import RunStatus
from fsjoule.store.archive import ARCHIVE_SUFFIX, digest_table, pack_run, run_digest
from fsjoule.store.files import Watcher, unwatched
from fsjoule.store.folder import FETCHED, RUN_NAME, is_being_written
from fsjoule.store.objects.address import is_run_name
from fsjoule.store.objects.archives import (
    Archive,
    FolderState,
    archive_key,
    compared,
    listed_archives,
    newest,
    table_of,
    unpack,
)
from fsjoule.store.objects.bucket import Bucket, in_parallel
from fsjoule.store.reader import load_run_file, run_files

_OTHER: Final = "the store has another content under its name"

# Nobody reads one archive for as long.
GRACE: Final = timedelta(days=1)


@dataclass
class PushReport:
    """The results of a push: runs that were new, had grown, or were known.

    `documents` counts those beside runs. `bytes` are those of the files that were sent, `sent_bytes` those of their
    archives. `left_out` names runs that were not sent, and `problems` files of runs that were left out of them.
    """

    new: int = 0
    grown: int = 0
    known: int = 0
    documents: int = 0
    bytes: int = 0
    sent_bytes: int = 0
    measuring: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])


def push_runs(
    bucket: Bucket, folders: Sequence[Path], *, again: bool = False, watch: Watcher = unwatched
) -> PushReport:
    """Send what the store lacks of these run folders. With `again` every run is sent, whatever the store has.

    `watch` gets the bytes of the folders that were sent, or are there already. Raises ObjectStoreError if the server
    fails or refuses, StorageError if an archive cannot be made here; runs that were sent before are whole.
    """
    push = _Push(bucket, folders, again=again, watch=watch)
    in_parallel(push.send, folders)
    done = push.done
    for names in (done.measuring, done.left_out, done.problems):
        names.sort()
    return done


class _Push:
    def __init__(self, bucket: Bucket, folders: Sequence[Path], *, again: bool, watch: Watcher) -> None:
        self.done = PushReport()
        self._bucket = bucket
        self._again = again
        self._watch = watch
        self._there = listed_archives(bucket)  # it also tells early that the store cannot be used
        self._sizes = {folder: _size_bytes(folder) for folder in folders}
        self._seen_bytes, self._of_bytes = 0, sum(self._sizes.values())
        self._counting = Lock()

    def send(self, folder: Path) -> None:
        try:
            self._send(folder)
        except ResultError as error:
            self.done.left_out.append(f"{folder.name}: {error.in_a_line}")
        except OSError as error:
            raise StorageError(
                f"an archive of {folder.name} cannot be made: {error.strerror or error}",
                hint="make room there, or name another folder: TMPDIR=FOLDER",
            ) from error
        with self._counting:
            self._seen_bytes += self._sizes[folder]
            self._watch(self._seen_bytes, self._of_bytes)

    def _send(self, folder: Path) -> None:
        run = load_run_file(folder)
        complete = run.status is RunStatus.COMPLETE
        if not is_run_name(folder.name) or not folder.name.endswith(f"-{run.run_id}"):
            raise ResultError(
                "its folder's name is not that of its run", hint="give it back the name that it was made with"
            )
        if is_being_written(folder):
            self.done.measuring.append(folder.name)
            return
        table = digest_table(folder, self.done.problems)
        key = archive_key(folder.name, table, complete=complete)
        there = self._there.get(folder.name, [])
        if not self._again and any(archive.key == key for archive in there):
            self._count(known=1)
            return
        if there and not self._is_newer(there[-1], table, complete=complete):
            self._count(known=1)
            return
        with TemporaryDirectory(prefix="fsjoule-push-") as work:
            packed = Path(work) / f"run{ARCHIVE_SUFFIX}"
            size_bytes = pack_run(folder, table, packed)
            self._bucket.put(key, packed)
            self._count(new=not there, grown=bool(there), bytes=size_bytes, sent_bytes=packed.stat().st_size)
        # Another machine may have sent other files of this run meanwhile.
        for archive in listed_archives(self._bucket, folder.name).get(folder.name, []):
            if archive.key != key and archive not in there:
                self._is_newer(archive, table, complete=complete)

    def _is_newer(self, archive: Archive, table: dict[str, str], *, complete: bool) -> bool:
        """Whether the folder has what an archive has not. Raises ResultError if it has another content."""
        try:
            stored = table_of(self._bucket, archive)
        except ResultError as error:
            if self._again:
                return True
            raise ResultError(error.what, hint="--again writes it again") from error
        found = compared(stored, table, were_complete=archive.complete, complete=complete)
        if found is FolderState.OTHER:
            raise ResultError(_OTHER, hint="find out which copy was changed")
        return found is FolderState.NEWER or (found is FolderState.SAME and self._again)

    def _count(self, *, new: int = 0, grown: int = 0, known: int = 0, bytes: int = 0, sent_bytes: int = 0) -> None:  # noqa: A002 - of the result
        with self._counting:
            self.done.new += new
            self.done.grown += grown
            self.done.known += known
            self.done.bytes += bytes
            self.done.sent_bytes += sent_bytes


def _size_bytes(folder: Path) -> int:
    """The size of a run's files; 0 if they cannot be listed, which is told when they are read."""
    try:
        return sum(folder.joinpath(*names).lstat().st_size for names in run_files(folder, []))
    except (OSError, ResultError):
        return 0


@dataclass
class PullReport:
    """The results of a pull: runs that were new, had grown, or were there; documents beside them; what is left out."""

    new: int = 0
    grown: int = 0
    known: int = 0
    documents: int = 0
    bytes: int = 0
    left_out: list[str] = field(default_factory=list[str])

    def add(self, other: PullReport) -> None:
        self.new += other.new
        self.grown += other.grown
        self.known += other.known
        self.bytes += other.bytes
        self.left_out += other.left_out


def pull_runs(bucket: Bucket, names: Sequence[str], into: Path, *, watch: Watcher = unwatched) -> PullReport:
    """Bring these runs into the folder `into`. Runs that are there stay, or get what the store has more.

    `watch` gets the bytes that were fetched after each run, and how many it will be if others are of the same size.
    Raises ObjectStoreError if the server fails or refuses, StorageError if `into` cannot be written; runs that were
    brought before are whole.
    """
    done = PullReport()
    archives = listed_archives(bucket) if len(names) > 1 else {}
    counting = Lock()

    def pull(name: str) -> None:
        one = PullReport()
        try:
            _pull(bucket, archives[name][-1] if name in archives else newest(bucket, name), into, one)
        except ResultError as error:
            one.left_out.append(f"{name}: {error.in_a_line}")
        with counting:
            done.add(one)
            number = done.new + done.grown + done.known + len(done.left_out)
            watch(done.bytes, done.bytes * len(names) // number)

    try:
        into.mkdir(parents=True, exist_ok=True)
        in_parallel(pull, names)
    except OSError as error:
        raise StorageError(
            f"{into} cannot be written: {error.strerror or error}", hint="make room there; runs in it are whole"
        ) from error
    done.left_out.sort()
    return done


def _pull(bucket: Bucket, archive: Archive, into: Path, done: PullReport) -> None:
    final = into / archive.name
    there = os.path.lexists(final)
    if there:
        if is_being_written(final):
            raise ResultError("it is being measured there right now", hint="pull it again when the bench has ended")
        if not _lacks(final, bucket, archive):
            done.known += 1
            return
    with TemporaryDirectory(prefix=FETCHED, dir=into, ignore_cleanup_errors=True) as work:
        made = Path(work) / archive.name
        table = unpack(bucket, archive, Path(work), lambda _: True)
        for path in table:
            with (made / path).open("rb") as file:
                os.fsync(file.fileno())
        for folder in {(made / path).parent for path in table}:
            flush_folder(folder)
        if there:
            final.rename(Path(work) / "before")
        made.rename(final)
        flush_folder(into)
    done.new += not there
    done.grown += there
    done.bytes += archive.size_bytes


def _lacks(folder: Path, bucket: Bucket, archive: Archive) -> bool:
    """Whether a folder is older than the run in the store. Raises ResultError if it has another content."""
    there = digest_table(folder, [])
    if run_digest(there) == archive.digest:
        return False
    complete = load_run_file(folder).status is RunStatus.COMPLETE
    stored = table_of(bucket, archive)
    found = compared(stored, there, were_complete=archive.complete, complete=complete)
    if found is FolderState.OTHER:
        raise ResultError(
            "the folder there has another content", hint="move it away, or find out which copy was changed"
        )
    return found is FolderState.OLDER


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
