"""Brings runs out of an object store: whole, compared with their digests, or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fsjoule.errors import ResultError, StorageError
from fsjoule.host.files import flush_folder
from fsjoule.host.inside import TRACE_BYTES
from fsjoule.model import RunStatus
from fsjoule.store.folder import FETCHED, is_being_written
from fsjoule.store.objects.bucket import Bucket, in_parallel
from fsjoule.store.objects.folder_files import content_of, digests, folder_files, looks_like
from fsjoule.store.objects.runs import FolderState, StoredFile, StoredRun, folder_state, object_key, read_manifest
from fsjoule.store.progress import Watcher, unwatched
from fsjoule.store.reader import load_run_file

_AGAIN: Final = "push the run again from a folder that has it: fsjoule results push --again"


@dataclass
class PullReport:
    """The results of a pull: runs that were new or had grown, and that were there; `left_out` names others."""

    new: int = 0
    grown: int = 0
    known: int = 0
    bytes: int = 0
    left_out: list[str] = field(default_factory=list[str])


def pull_runs(bucket: Bucket, names: Sequence[str], into: Path, *, watch: Watcher = unwatched) -> PullReport:
    """Bring these runs into the folder `into`. Runs that are there stay, or get what the store has more.

    `watch` gets the bytes that were fetched after each run, and how many it will be if the others are of the same size.
    Raises ObjectStoreError if the server fails or refuses, StorageError if `into` cannot be written; runs that were
    brought before are whole.
    """
    done = PullReport()
    try:
        into.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(names, start=1):
            try:
                _pull(bucket, name, into, done)
            except ResultError as error:
                done.left_out.append(f"{name}: {error.in_a_line}")
            watch(done.bytes, done.bytes * len(names) // number)
    except OSError as error:
        raise StorageError(
            f"{into} cannot be written: {error.strerror or error}", hint="make room there; runs in it are whole"
        ) from error
    return done


def _pull(bucket: Bucket, name: str, into: Path, done: PullReport) -> None:
    found = read_manifest(bucket, name)
    if found is None:
        raise ResultError("the store has no such run", hint="fsjoule results list shows what is there")
    run, final = found[0], into / name
    there = os.path.lexists(final)
    lacking = set(run.files)
    if there:
        if is_being_written(final):
            raise ResultError("it is being measured there right now", hint="pull it again when the bench has ended")
        lacking = _lacking(run, final)
        if not lacking:
            done.known += 1
            return
    with TemporaryDirectory(prefix=FETCHED, dir=into, ignore_cleanup_errors=True) as work:
        made = Path(work) / name
        fetch(bucket, name, run, made, lacking)
        for path in run.files.keys() - lacking:
            _write(made / path, content_of(final, path) or b"")
        # All at once: the disk's journal takes them together.
        in_parallel(_flush, [made / path for path in run.files])
        for folder in {(made / path).parent for path in run.files}:
            flush_folder(folder)
        if there:
            final.rename(Path(work) / "before")
        made.rename(final)
        flush_folder(into)
    done.new += not there
    done.grown += there
    done.bytes += sum(run.files[path].bytes for path in lacking)


def fetch(bucket: Bucket, name: str, run: StoredRun, into: Path, paths: Iterable[str]) -> None:
    """Write these files of a run below the folder `into`, which nobody else sees yet.

    Raises ResultError if an object is missing or damaged, ObjectStoreError, OSError.
    """
    by_object: dict[str, list[str]] = {}
    for path in paths:
        by_object.setdefault(run.files[path].object, []).append(path)

    def one(digest: str) -> None:
        wanted = by_object[digest]
        found = bucket.get(object_key(digest), at_most=TRACE_BYTES)
        if found is None:
            raise _missing(bucket, name, digest)
        content = found[0]
        for path in wanted:
            file = run.files[path]
            part = content[file.at : file.at + file.bytes]
            if not _is(part, file):
                what = f"{bucket.named(object_key(digest))} is damaged: {path} of {name} has another digest"
                raise ResultError(what, hint=_AGAIN)
            _write(into / path, part)

    in_parallel(one, by_object)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(content)


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _missing(bucket: Bucket, name: str, digest: str) -> ResultError:
    if read_manifest(bucket, name) is None:
        return ResultError(
            f"{name} was removed from the store meanwhile", hint="fsjoule results list shows what is there"
        )
    return ResultError(f"{bucket.named(object_key(digest))} is missing, an object of {name}", hint=_AGAIN)


def _lacking(run: StoredRun, folder: Path) -> set[str]:
    """The files of the store that a folder has not, or has older. Raises ResultError if it has another content."""
    if looks_like(folder, run):
        return set()
    there = digests(folder_files(folder, []))
    complete = load_run_file(folder).status is RunStatus.COMPLETE
    found = folder_state(run, there, complete=complete)
    if found is FolderState.OTHER:
        raise ResultError(
            "the folder there has another content", hint="move it away, or find out which copy was changed"
        )
    if found is not FolderState.OLDER:
        return set()
    return {path for path, file in run.files.items() if there.get(path) != file.sha256}


def _is(content: bytes, file: StoredFile) -> bool:
    return len(content) == file.bytes and hashlib.sha256(content).hexdigest() == file.sha256
