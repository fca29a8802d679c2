"""Copies of runs of an object store on this computer, for whatever reads run folders.

A copy belongs to one version of a run, is whole, and is compared with the run's digests: when it is made, and again
whenever its files have other times or sizes than then. A damaged copy is made again. Copies that were not used for long
go when there are too many, unless another process may be reading them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fsjoule.errors import ConfigError, ResultError, StorageError
from fsjoule.host.cache.contents import fingerprint
from fsjoule.host.cache.locks import is_used_here, unused, use
from fsjoule.host.paths import cache_folder
from fsjoule.store.archive import digest_table, is_document, run_digest
from fsjoule.store.files import Watcher, unwatched
from fsjoule.store.objects.address import Address, is_address, parse_address
from fsjoule.store.objects.archives import Archive, listed_runs, newest, unpack
from fsjoule.store.objects.bucket import Bucket, in_parallel, open_bucket

LIMIT_VARIABLE: Final = "FSJOULE_RUNS_CACHE_GIB"
_LIMIT_GIB: Final = 10.0
_USED: Final = ".use"
_PART: Final = ".part-"
_TABLE: Final = "digests.json"
_CHECKED: Final = "checked.json"


@dataclass(frozen=True, slots=True)
class Copy:
    """A run's folder on this computer. `problem` is the reason why there is none."""

    address: Address
    folder: Path
    problem: ResultError | None = None


def at_hand(path: Path) -> Path:
    """The run folder that a user has named; that of an address is a copy. Raises ConfigError for several runs."""
    if not is_address(path):
        return path
    address = parse_address(path)
    if address.run is None:
        hint = f"name one of them: fsjoule results list {address}"
        raise ConfigError(f"{address} is a folder of runs, not a run", hint=hint)
    return _good(copies(address))[0]


def all_at_hand(paths: Iterable[Path]) -> list[Path]:
    """Folders that a user has named; an address becomes copies of its runs. Raises ResultError for a damaged one."""
    folders: list[Path] = []
    for path in paths:
        folders += _good(copies(parse_address(path))) if is_address(path) else [path]
    return folders


def copies(address: Address, *, documents: bool = False, watch: Watcher = unwatched) -> list[Copy]:
    """Copies of a run, or of all runs below an address; with `documents` only of what an index is made from.

    They stay until this process ends. `watch` gets the runs done, and of how many. Raises ResultError if there is no
    such run, ConfigError if there is none at all, ObjectStoreError, StorageError.
    """
    bucket = open_bucket(address)
    runs = listed_runs(bucket) if address.run is None else [newest(bucket, address.run)]
    if not runs:
        raise ConfigError(f"there is no run in {address}", hint=f"fsjoule results push results {address}")
    root, limit = cache_folder("runs"), _limit_bytes()
    try:
        if not is_used_here(root / _USED):  # else copies of this process might go
            _trim(root, limit)
            use(root / _USED)
        make = partial(_copy, bucket, root, documents)
        made: list[Copy] = []
        for start in range(0, len(runs), 100):
            made += in_parallel(make, runs[start : start + 100])
            watch(len(made), len(runs))
    except OSError as error:
        raise StorageError(
            f"the cache cannot be written: {error.filename or root}: {error.strerror}",
            hint="make room there, or name another folder: FSJOULE_CACHE_DIR=FOLDER",
        ) from error
    return made


def _good(made: list[Copy]) -> list[Path]:
    for each in made:
        if each.problem is not None:
            raise each.problem
    return [each.folder for each in made]


def _copy(bucket: Bucket, root: Path, documents: bool, archive: Archive) -> Copy:
    address = bucket.address.of(archive.name)
    parts = [bucket.place, bucket.address.bucket, bucket.address.prefix, archive.key, documents]
    entry = root / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    try:
        if not _is_whole(entry, archive, documents=documents):
            _make(bucket, entry, archive, documents=documents)
    except ResultError as error:
        return Copy(address, entry / archive.name, error)
    with suppress(OSError):  # a cache that may only be read
        os.utime(entry)
    return Copy(address, entry / archive.name)


def _make(bucket: Bucket, entry: Path, archive: Archive, *, documents: bool) -> None:
    with TemporaryDirectory(prefix=_PART, dir=entry.parent, ignore_cleanup_errors=True) as work:
        made = Path(work) / entry.name
        table = unpack(bucket, archive, made, _wanted(documents))
        (made / _TABLE).write_text(json.dumps(table), encoding="utf-8")
        _stamp(made, archive)
        with suppress(FileNotFoundError):
            entry.rename(Path(work) / "before")
        try:
            made.rename(entry)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            # Another process has made the same copy meanwhile.


def _wanted(documents: bool) -> Callable[[str], bool]:
    return is_document if documents else lambda _: True


def _is_whole(entry: Path, archive: Archive, *, documents: bool) -> bool:
    """Whether a copy has the files that it was made with."""
    folder = entry / archive.name
    try:
        if json.loads((entry / _CHECKED).read_bytes())["fingerprint"] == fingerprint(folder):
            return True
        table = json.loads((entry / _TABLE).read_bytes())
        problems: list[str] = []
        there = digest_table(folder, problems, believe=False)
        wanted = _wanted(documents)
        if problems or run_digest(table) != archive.digest or there != {p: table[p] for p in table if wanted(p)}:
            return False
        _stamp(entry, archive)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ResultError):
        return False
    return True


def _stamp(entry: Path, archive: Archive) -> None:
    folder = entry / archive.name
    size = sum(path.stat().st_size for path in folder.rglob("*"))
    (entry / _CHECKED).write_text(json.dumps({"fingerprint": fingerprint(folder), "bytes": size}), encoding="utf-8")


def _trim(root: Path, limit_bytes: int) -> None:
    """Remove what killed processes left, and the copies that were used longest ago as far as there are too many."""
    with suppress(PermissionError), unused(root / _USED) as nobody:  # a cache that may only be read
        if not nobody:
            return
        entries: list[tuple[float, int, Path]] = []
        for path in root.iterdir():
            if path.name.startswith(_PART):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _USED:
                entries.append((path.lstat().st_mtime, _bytes(path), path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= limit_bytes:
                break
            # Renamed first: half a copy must not stay in its place.
            path.rename(root / f"{_PART}{path.name}")
            shutil.rmtree(root / f"{_PART}{path.name}", ignore_errors=True)
            total -= size


def _bytes(entry: Path) -> int:
    try:
        return int(json.loads((entry / _CHECKED).read_bytes())["bytes"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0


def _limit_bytes() -> int:
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    try:
        limit = float(text) if text else _LIMIT_GIB
    except ValueError:
        limit = -1.0
    if not 0 <= limit < 1 << 20:
        raise ConfigError(f"{LIMIT_VARIABLE}={text!r} is not a number of GiB", hint="for example 10")
    return int(limit * (1 << 30))
