"""Sends run folders to an object store: first the objects that it lacks, then the manifest that makes a run of them.

A push that was interrupted has left objects without a manifest, which are no run. Repeated, it finds them and sends the
others. Several pushes of one run may meet: each sends the same objects, and the manifest is written only in place of
the one that was read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from fsjoule.errors import ObjectStoreError, ResultError
from fsjoule.model import RunStatus
from fsjoule.store.folder import is_being_written
from fsjoule.store.objects.address import is_run_name
from fsjoule.store.objects.bucket import MIB, Bucket, in_parallel
from fsjoule.store.objects.folder_files import FolderFile, digests, folder_files, joined, looks_like, size_bytes
from fsjoule.store.objects.prune import idle_version, write_intent
from fsjoule.store.objects.runs import (
    BUNDLE_BYTES,
    SMALL_BYTES,
    FolderState,
    StoredFile,
    StoredRun,
    folder_state,
    object_key,
    read_manifest,
    run_key,
    write_manifest,
)
from fsjoule.store.progress import Watcher, unwatched
from fsjoule.store.reader import load_run_file

_TRIES: Final = 8
# Larger objects are sent one at a time: each is in memory.
_LARGE_BYTES: Final = 16 * MIB


@dataclass
class PushReport:
    """The results of a push. `bytes` of the pushed runs' files were in the store already as far as not sent.

    `left_out` names runs that were not sent, and `problems` files of runs that were left out of them.
    """

    new: int = 0
    grown: int = 0
    known: int = 0
    bytes: int = 0
    sent_bytes: int = 0
    sent_objects: int = 0
    measuring: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])


def push_runs(
    bucket: Bucket,
    folders: Sequence[Path],
    *,
    again: bool = False,
    watch: Watcher = unwatched,
    say: Callable[[str], None] = lambda _: None,
) -> PushReport:
    """Send what the store lacks of these run folders. With `again` every file is sent, whatever the store has.

    `watch` gets the bytes of the folders that were sent, or are there already, after each object.
    Raises ObjectStoreError if the server fails or refuses; runs that were sent before are whole.
    """
    return _Push(bucket, again=again, watch=watch, say=say).push(folders)


class _Push:
    def __init__(self, bucket: Bucket, *, again: bool, watch: Watcher, say: Callable[[str], None]) -> None:
        self._bucket = bucket
        self._again = again
        self._watch = watch
        self._say = say
        self._done = PushReport()
        self._counting = Lock()
        self._large = Lock()
        self._seen_bytes = self._of_bytes = 0

    def push(self, folders: Sequence[Path]) -> PushReport:
        # Opened once, before anything is sent; it also tells early that the store cannot be used.
        idle_version(self._bucket, self._say)
        sizes = [size_bytes(folder) for folder in folders]
        self._of_bytes = sum(sizes)
        done_bytes = 0
        for folder, size in zip(folders, sizes, strict=True):
            try:
                self._push_run(folder)
            except ResultError as error:
                self._done.left_out.append(f"{folder.name}: {error.in_a_line}")
            done_bytes += size
            self._tell(done_bytes)
        return self._done

    def _push_run(self, folder: Path) -> None:
        run = load_run_file(folder)
        complete = run.status is RunStatus.COMPLETE
        if not is_run_name(folder.name) or not folder.name.endswith(f"-{run.run_id}"):
            raise ResultError(
                "its folder's name is not that of its run", hint="give it back the name that it was made with"
            )
        if is_being_written(folder):
            self._done.measuring.append(folder.name)
            return
        files: dict[str, FolderFile] | None = None
        fresh = self._again  # whether each object of the run is looked for, or sent
        for _ in range(_TRIES):
            stored, version = self._stored(folder.name)
            if stored is not None and not fresh and looks_like(folder, stored):
                self._done.known += 1
                return
            files = files or folder_files(folder, self._done.problems)
            found = FolderState.NEWER if stored is None else folder_state(stored, digests(files), complete=complete)
            if found is FolderState.OTHER:
                raise ResultError(
                    "the store has another content under its name", hint="find out which copy was changed"
                )
            if found is FolderState.OLDER or (found is FolderState.SAME and not self._again):
                self._done.known += 1
                return
            plan = _Plan.of(folder, files, () if stored is None or fresh else stored.files.values())
            manifest = StoredRun(complete, plan.files)
            write_intent(self._bucket, folder.name, manifest.objects())
            mark = idle_version(self._bucket, self._say)
            in_parallel(partial(self._send, folder), plan.objects.items())
            if idle_version(self._bucket, self._say) != mark and not self._has(manifest):
                fresh = True  # objects were removed meanwhile
            elif write_manifest(self._bucket, folder.name, manifest, version):
                self._done.new += stored is None
                self._done.grown += stored is not None
                self._done.bytes += sum(file.bytes for file in files.values())
                return
            # Else another push was first.
        raise ObjectStoreError(f"{folder.name} is being changed by others at this moment", hint="try again later")

    def _stored(self, name: str) -> tuple[StoredRun | None, str | None]:
        """The store's manifest of a run, and its version. Raises ResultError if it is damaged and would be kept."""
        try:
            return read_manifest(self._bucket, name) or (None, None)
        except ResultError as error:
            if not self._again:
                raise ResultError(error.what, hint="--again writes it again") from error
        found = self._bucket.find(run_key(name))
        return None, None if found is None else found.version

    def _has(self, manifest: StoredRun) -> bool:
        """Whether all objects of a run are there."""
        return None not in in_parallel(lambda digest: self._bucket.find(object_key(digest)), manifest.objects())

    def _send(self, folder: Path, planned: tuple[str, tuple[FolderFile, ...]]) -> None:
        digest, files = planned
        key, size = object_key(digest), sum(file.bytes for file in files)
        there = None if self._again else self._bucket.find(key)
        # One of another size was cut short, or damaged.
        if there is not None and there.size_bytes == size:
            return
        with self._large if size > _LARGE_BYTES else nullcontext():
            self._bucket.put(key, joined(folder, files))
        with self._counting:
            self._done.sent_objects += 1
            self._done.sent_bytes += size
            self._tell(self._seen_bytes + size)

    def _tell(self, done_bytes: int) -> None:
        self._seen_bytes = done_bytes
        self._watch(done_bytes, self._of_bytes)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where each file of a run will be, and what each new object is made of."""

    files: dict[str, StoredFile]
    objects: dict[str, tuple[FolderFile, ...]]

    @classmethod
    def of(cls, folder: Path, files: Mapping[str, FolderFile], kept: Iterable[StoredFile]) -> _Plan:
        """Put small files together, and large ones into objects of their own. `kept` have their places already."""
        placed = {file.sha256: file for file in kept}
        new = {file.sha256: file for file in files.values() if file.sha256 not in placed}.values()
        objects: dict[str, tuple[FolderFile, ...]] = {}
        objects |= {file.sha256: (file,) for file in new if file.bytes >= SMALL_BYTES}
        for bundle in _bundles(file for file in new if file.bytes < SMALL_BYTES):
            objects[hashlib.sha256(joined(folder, bundle)).hexdigest()] = bundle
        for digest, group in objects.items():
            at = 0
            for file in group:
                placed[file.sha256] = StoredFile(file.sha256, file.bytes, digest, at)
                at += file.bytes
        return cls({path: placed[file.sha256] for path, file in files.items()}, objects)


def _bundles(files: Iterable[FolderFile]) -> list[tuple[FolderFile, ...]]:
    bundles: list[list[FolderFile]] = []
    left = 0
    for file in sorted(files, key=lambda file: file.path):
        if file.bytes > left or not bundles:
            bundles.append([])
            left = BUNDLE_BYTES
        bundles[-1].append(file)
        left -= file.bytes
    return [tuple(bundle) for bundle in bundles]
