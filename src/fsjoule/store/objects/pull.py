"""Brings runs out of an object store: whole, compared with their digests, or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from fsjoule.errors import ResultError, StorageError
from fsjoule.host.files import flush_folder
from fsjoule.model import RunStatus
from fsjoule.store.archive import digest_table, run_digest
from fsjoule.store.folder import FETCHED, is_being_written
from fsjoule.store.objects.archives import Archive, FolderState, compared, listed_archives, newest, table_of, unpack
from fsjoule.store.objects.bucket import Bucket, in_parallel
from fsjoule.store.progress import Watcher, unwatched
from fsjoule.store.reader import load_run_file


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
            _flush(made / path)
        for folder in {(made / path).parent for path in table}:
            flush_folder(folder)
        if there:
            final.rename(Path(work) / "before")
        made.rename(final)
        flush_folder(into)
    done.new += not there
    done.grown += there
    done.bytes += archive.size_bytes


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


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
