"""Documents beside runs (states of changes, confirmations) in an object store: an object each, which never changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fsjoule.errors import StorageError
from fsjoule.host.files import write_file
from fsjoule.host.inside import DOCUMENT_BYTES, list_inside, read_inside
from fsjoule.host.paths import cache_folder
from fsjoule.store import confirmations, states
from fsjoule.store.document_folder import is_document_name, is_whole
from fsjoule.store.objects.address import Address
from fsjoule.store.objects.bucket import Bucket, StoredObject, in_parallel, open_bucket
from fsjoule.store.run_folders import beside_runs

FOLDERS: Final = (states.FOLDER, confirmations.FOLDER)


def push_documents(bucket: Bucket, paths: Iterable[Path], runs: Iterable[Path]) -> tuple[int, list[str]]:
    """Send the documents in `paths` and beside `runs` that the store lacks; returns their number, and what is left out.

    Raises ObjectStoreError.
    """
    paths, runs = list(paths), list(runs)
    left_out: list[str] = []
    new: dict[str, Path] = {}
    for name in FOLDERS:
        here = [(folder, file) for folder in beside_runs(name, paths, runs) for file in list_inside(folder).files]
        there = {each.key for each in bucket.list(name)} if here else set[str]()
        for folder, file in here:
            if not is_document_name(file) or f"{name}/{file}" in there:
                continue
            content = read_inside(folder, file, at_most=DOCUMENT_BYTES)
            if content is None or not is_whole(file, content):
                left_out.append(f"{folder / file}: it has another content than it was written with")
            else:
                new[f"{name}/{file}"] = folder / file
    in_parallel(lambda key: bucket.put(key, new[key]), sorted(new))
    return len(new), left_out


def pull_documents(bucket: Bucket, into: Path, folders: Iterable[str] = FOLDERS) -> tuple[int, list[str]]:
    """Bring the documents of `folders` that the folder `into` lacks; returns their number, and what is left out.

    Raises ObjectStoreError, StorageError.
    """
    left_out: list[str] = []
    new: list[StoredObject] = []
    for name in folders:
        here = {f"{name}/{file}" for file in list_inside(into / name).files}
        new += [each for each in bucket.list(name) if each.key not in here and _is_document(each)]

    def pull(each: StoredObject) -> None:
        content = bucket.part(each.key, 0, each.size_bytes)
        path = into / each.key
        if not is_whole(path.name, content):
            left_out.append(f"{bucket.named(each.key)}: it has another content than it was written with")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)

    try:
        in_parallel(pull, new)
    except OSError as error:
        raise StorageError(f"{into} cannot be written: {error.strerror or error}", hint="make room there") from error
    return len(new) - len(left_out), sorted(left_out)


def states_copy(address: Address) -> tuple[Path, list[str]]:
    """A folder with copies of the states at an address, and what is left out of it. Raises as `pull_documents`."""
    bucket = open_bucket(address)
    parts = [bucket.place, address.bucket, address.prefix]
    folder = cache_folder("documents") / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    folder.mkdir(exist_ok=True)
    return folder, pull_documents(bucket, folder, [states.FOLDER])[1]


def _is_document(each: StoredObject) -> bool:
    return is_document_name(each.key.partition("/")[2]) and 0 < each.size_bytes <= DOCUMENT_BYTES
