"""The cache of build stages: `<cache>/images/<stage>/<name>-<key>/`.

An entry is built in a temporary folder beside its place, under its own lock, synced to disk and renamed into its place
when it is whole. Two builders never build the same entry at once. Its file `entry.json` records its content with
digests. Each use compares it: by times and sizes if they match the last comparison (`.<name>-<key>.checked`), otherwise
by content. A damaged entry is reported, removed and built again. The key is a digest of everything that goes into the
stage; unused entries stay until `clean`.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import HostError, ResultError, StorageError
from fsjoule.host.cache.contents import Contents, contents_digest, contents_of, difference, fingerprint, set_modes
from fsjoule.host.cache.locks import discard, is_locked, locked, unused, use
from fsjoule.host.inside import ATTACHMENT_BYTES, read_inside
from fsjoule.host.json_text import json_text
from fsjoule.host.paths import cache_folder, cache_hint
from fsjoule.host.process import size_mib

_log: Final = logging.getLogger(__name__)

# In the order of building.
STAGES: Final = (
    "steady", "emulator", "boot_loader", "dkms", "kernel", "userland", "partition", "signing_key", "update", "card",
    "aged",
)  # fmt: skip
LOCK_TIMEOUT_S: Final = 1800.0
_CLEAN_TIMEOUT_S: Final = 5.0
_ENTRY_FILE: Final = "entry.json"
UNFINISHED: Final = ".part-"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_LITTLE_BYTES: Final = 8 * 2**20
_libc: Final = ctypes.CDLL(None, use_errno=True)
_RECORD: Final[ContextVar[_Record | None]] = ContextVar("_RECORD", default=None)


@dataclass(frozen=True, slots=True)
class _Record:
    used: list[Path]
    build: bool


@contextmanager
def recorded(*, build: bool = True) -> Generator[list[Path]]:
    """The entries that the body asks `build_once` for. Without `build`, one that is not there is a HostError."""
    used: list[Path] = []
    token = _RECORD.set(_Record(used, build))
    try:
        yield used
    finally:
        _RECORD.reset(token)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A built stage. `name` is its purpose (`imx6ul-6.1-ext4`), `size_bytes` is on disk, `damage` None if usable."""

    stage: str
    name: str
    key: str
    path: Path
    created_utc: str
    size_bytes: int
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class _Stored:
    stage: str
    name: str
    key: str
    created_utc: str
    digest: str
    contents: Contents


_STORED: Final = TypeAdapter(_Stored)


def images_cache() -> Path:
    """The folder of all stages; made if absent. Raises StorageError."""
    return cache_folder("images")


def cache_key(inputs: Mapping[str, Any]) -> str:
    """A digest of everything that goes into a stage; equal for equal content, in any order of the keys."""
    canonical = json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        executable = bool(path.stat().st_mode & 0o100)
        header = json.dumps([path.relative_to(folder).as_posix(), executable, path.stat().st_size])
        digest.update(header.encode() + path.read_bytes())
    return digest.hexdigest()


def entry_digest(entry: Path) -> str:
    """A digest of an entry's content, independent of time and place. Stages made from it use it as a key."""
    return _stored(entry).digest


def build_once(
    stage: str,
    name: str,
    key: str,
    build: Callable[[Path], None],
    *,
    root: Path | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    read: bool = False,
    own_modes: str = "",
) -> Path:
    """The folder of a stage's result; if no whole one exists, `build` fills an empty folder.

    With `read` the content is compared at each use, not only if a file's metadata have changed. Modes become 0644 and
    0755, whatever the user's umask is, but for those in the folder `own_modes` of the result. `clean` leaves the result
    alone until this process ends. Raises HostError if another process holds the entry's lock for longer than
    `lock_timeout_s`, StorageError if the cache cannot be written, and the errors of `build`.
    """
    folder = (root or images_cache()) / stage
    final = folder / f"{name}-{key}"
    record = _RECORD.get()
    if record is not None:
        record.used.append(final)
    with _told(folder):
        if os.path.lexists(folder) and not folder.is_dir():
            discard(folder)
        folder.mkdir(parents=True, exist_ok=True)
        use(_beside(final, "use"))
        if os.path.lexists(final) and damage(final, read=read) is None:
            return final
        if record is not None and not record.build:
            raise HostError(f"the cache has no whole {stage} {final.name}")
        with locked(_beside(final, "lock"), f"{stage} {name}", lock_timeout_s):
            sweep(final)
            if os.path.lexists(final):
                found = damage(final, read=read)
                if found is None:
                    return final
                _log.info("the cached %s %s is damaged: %s; building it again", stage, name, found)
                discard(_moved_away(final))
            _build(final, build, {"stage": stage, "name": name, "key": key}, own_modes)
    return final


def adopt(entry: Path, stage: str) -> bool:
    """Move a whole entry from elsewhere on the cache's filesystem to its place; False if a whole one is there.

    Raises HostError if another process holds its lock for too long, StorageError if the cache cannot be written.
    """
    folder = images_cache() / stage
    final = folder / entry.name
    with _told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(_beside(final, "lock"), f"{stage} {entry.name}", LOCK_TIMEOUT_S):
            sweep(final)
            if os.path.lexists(final):
                if damage(final) is None:
                    return False
                discard(_moved_away(final))
            entry.chmod(0o755)
            _to_disk(entry, _libc.syncfs)
            entry.rename(final)
            _to_disk(folder, _libc.fsync)
            _stamp(final, fingerprint(final))
    return True


def sweep(final: Path) -> None:
    """Remove the leftovers of killed builders of an entry, whose own children may still run. Call it under the lock."""
    for leftover in final.parent.glob(f".{glob.escape(final.name)}{UNFINISHED}*"):
        shutil.rmtree(_moved_away(leftover), ignore_errors=True)


def damage(entry: Path, *, read: bool = False) -> str | None:
    """The reason why an entry cannot be used, or None. Its content is read unless that was done before, or to `read`.

    A disk that loses a bit, or a program that writes past the filesystem, changes no metadata: only reading tells.
    """
    if entry.is_symlink() or not entry.is_dir():
        return "it is not a folder"
    try:
        seen = fingerprint(entry)
        stored = _stored(entry)
    except FileNotFoundError:
        found = f"{_ENTRY_FILE} is missing"
    except ValidationError:
        found = f"{_ENTRY_FILE} is not a record of its content"
    except ResultError as error:
        found = error.what
    except OSError as error:
        found = f"it cannot be read: {error.strerror}"
    else:
        found = _damage(entry, stored, seen, read=read)
    return found


def check_whole(entry: Path) -> None:
    """Read the content of an entry that something else is made from. Raises HostError if it is damaged."""
    if found := damage(entry, read=True):
        raise HostError(f"the cached {entry} is damaged: {found}", hint="fsjoule image clean, then try again")


def _damage(entry: Path, stored: _Stored, seen: str, *, read: bool) -> str | None:
    """The difference between an entry and its record; `seen` is its fingerprint."""
    if f"{stored.name}-{stored.key}" != entry.name or contents_digest(stored.contents) != stored.digest:
        return f"{_ENTRY_FILE} belongs to another entry"
    stamp = _beside(entry, "checked")
    with suppress(ResultError):
        if not read and read_inside(stamp.parent, stamp.name, at_most=ATTACHMENT_BYTES) == seen.encode():
            return None
    found = difference(entry, stored.contents, without=_ENTRY_FILE)
    if found is None:
        _stamp(entry, seen)
    return found


def _stamp(entry: Path, seen: str) -> None:
    """Record that an entry with this fingerprint was whole. The record's place may have any file, even a FIFO."""
    stamp = _beside(entry, "checked")
    with suppress(OSError):  # another user's cache, or a full disk: the next use reads it again
        discard(stamp)
        stamp.write_text(seen)


def _stored(entry: Path) -> _Stored:
    """Raises FileNotFoundError, ResultError if it is no file or unreadable, ValidationError."""
    content = read_inside(entry, _ENTRY_FILE, at_most=ATTACHMENT_BYTES)
    if content is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(entry / _ENTRY_FILE))
    return _STORED.validate_json(content)


def cached(root: Path | None = None, stages: Iterable[str] = STAGES) -> list[CacheEntry]:
    """All entries by stage and name, with damaged ones and leftovers of interrupted builds."""
    base = root or images_cache()
    return [_listed(stage, path) for stage in stages for path in places(base / stage)]


def clean(entries: Iterable[CacheEntry]) -> int:
    """Remove entries. Returns the freed bytes.

    After all others are removed, it raises StorageError for irremovable entries, HostError for used ones.
    """
    freed = 0
    kept: list[str] = []
    failed: dict[Path, str] = {}
    for entry in entries:
        what = f"{entry.stage} {entry.name}".strip()
        try:
            if not _removed(entry, what):
                _log.info("kept %s: another process uses it", what)
                kept.append(what)
                continue
        except OSError as error:
            failed[entry.path] = error.strerror or str(error)
            _log.info("kept %s: it cannot be removed: %s", what, failed[entry.path])
            continue
        _log.info("removed %s (%.0f MiB)", what, entry.size_bytes / 2**20)
        freed += entry.size_bytes
    if failed:
        path, why = next(iter(failed.items()))
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise StorageError(
            f"the cache cannot be written: {path}: {why}{more}",
            hint=f"{cache_hint(path)}, or remove by hand: {' '.join(map(str, failed))}",
        )
    if kept:
        hint = "end the processes that use them, and clean again"
        raise HostError(f"not removed, because another process uses them: {', '.join(kept)}", transient=True, hint=hint)
    return freed


def drop(path: Path, what: str, *, timeout_s: float = 0.0) -> bool:
    """Remove an entry, or what an interrupted build of it has left; False if another process uses or builds it.

    This process uses it no longer in any case. Raises OSError for an irremovable one.
    """
    final = path.with_name(path.name.partition(UNFINISHED)[0].removeprefix("."))
    lock, used = _beside(final, "lock"), _beside(final, "use")
    try:
        with locked(lock, what, timeout_s), unused(used) as nobody:
            if not nobody:
                return False
            if os.path.lexists(path):
                discard(_moved_away(path))
            for beside in (_beside(final, "checked"), used, lock):
                discard(beside)
    except HostError:
        return False
    return True


def _build(final: Path, build: Callable[[Path], None], names: Mapping[str, str], own_modes: str) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f".{final.name}{UNFINISHED}", dir=final.parent))
    try:
        unfinished.chmod(0o755)
        build(unfinished)
        set_modes(unfinished, but=own_modes)
        created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        contents = contents_of(unfinished, without=_ENTRY_FILE)
        stored = _Stored(**names, created_utc=created, digest=contents_digest(contents), contents=contents)
        (unfinished / _ENTRY_FILE).write_bytes(json_text(_STORED, stored, indent=2))
        _to_disk(unfinished, _libc.syncfs)  # one call for thousands of files
        unfinished.rename(final)
        _to_disk(final.parent, _libc.fsync)
        _stamp(final, fingerprint(final))
    except HostError as error:
        if not isinstance(error, StorageError) and _is_full(final.parent, error):
            raise _full(final.parent) from error
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _to_disk(folder: Path, synchronise: Callable[[int], int]) -> None:
    """Sync a folder, or its whole filesystem, to disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if synchronise(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(descriptor)


def places(stage: Path) -> Iterator[Path]:
    """Paths of entries, of wrong files in their places, and of unfinished entries that nobody is building."""
    # Looked at once: another process may just be making the folder.
    try:
        there = sorted(stage.iterdir())
    except FileNotFoundError:
        there = [stage] if stage.is_symlink() else []
    except OSError:
        there = [stage]  # `damage` tells why
    for path in there:
        name, unfinished, _ = path.name.partition(UNFINISHED)
        left = unfinished and not is_locked(path.with_name(f"{name}.lock"))
        if left or not path.name.startswith("."):
            yield path


def _listed(stage: str, path: Path) -> CacheEntry:
    size = round(size_mib(path) * 2**20)
    called = path.name.partition(UNFINISHED)[0].removeprefix(".")
    name, _, key = called.rpartition("-") if path.name != stage else ("", "", "")
    if path.name.startswith("."):
        return CacheEntry(stage, name, key, path, "", size, "its build was interrupted")
    if found := damage(path):
        return CacheEntry(stage, name or called, key, path, "", size, found)
    stored = _stored(path)
    return CacheEntry(stored.stage, stored.name, stored.key, path, stored.created_utc, size)


def _removed(entry: CacheEntry, what: str) -> bool:
    if not os.path.lexists(entry.path):
        return True
    if entry.path.name == entry.stage:  # a wrong file in the place of a whole stage
        if entry.path.is_dir() and not entry.path.is_symlink():
            any(entry.path.iterdir())  # which fails, unless a builder has put the folder there meanwhile
        else:
            entry.path.unlink(missing_ok=True)
        return True
    return drop(entry.path, what, timeout_s=_CLEAN_TIMEOUT_S)


def _beside(entry: Path, kind: str) -> Path:
    return entry.with_name(f".{entry.name}.{kind}")


def _moved_away(path: Path) -> Path:
    """Renamed first: an interrupted removal must not leave half an entry in its place."""
    name = path.name.partition(UNFINISHED)[0].removeprefix(".")
    doomed = path.with_name(f".{name}{UNFINISHED}removed")
    if doomed != path:
        discard(doomed)
        path.rename(doomed)
    return doomed


@contextmanager
def _told(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _full(folder) from error
        if error.filename is None or not Path(error.filename).is_relative_to(folder.parent):
            raise
        raise StorageError(
            f"the cache cannot be written: {error.filename}: {error.strerror}",
            hint=cache_hint(Path(error.filename)),
        ) from error


def _full(folder: Path) -> StorageError:
    return StorageError(
        f"the disk of the cache is full: {folder}: {os.strerror(errno.ENOSPC)}",
        hint="make room (fsjoule image clean empties the cache), or name another folder: FSJOULE_CACHE_DIR=FOLDER",
    )


def _is_full(folder: Path, error: HostError) -> bool:
    free = os.statvfs(folder)
    words = tuple(os.strerror(number) for number in _FULL)
    return free.f_bavail * free.f_frsize < _LITTLE_BYTES or any(word in error.what for word in words)
