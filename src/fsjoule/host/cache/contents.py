"""The content of a cache entry: recorded when it is built, compared when it is used."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_BLOCK_BYTES: Final = 65536
_ZEROS: Final = bytes(_BLOCK_BYTES)

# One line per path: mode (octal, with the file's type), size in bytes, digest; `-` for nothing. Whose the files are
# does not matter: a cache may be brought to another user.
Contents = dict[str, str]


def set_modes(folder: Path, *, but: str) -> None:
    """Give all below a folder the modes that the usual umask leaves, except what is in its folder `but`."""
    for name, path, found in _walk(folder, ""):
        if not stat.S_ISLNK(found.st_mode) and not (but and name.startswith(f"{but}/")):
            path.chmod(0o755 if stat.S_ISDIR(found.st_mode) or found.st_mode & stat.S_IXUSR else 0o644)


def contents_of(folder: Path, *, without: str) -> Contents:
    """All files, folders and links below a folder, by path, except the record `without`. Raises OSError."""
    return {name: _line(found, _digest(path, found)) for name, path, found in _walk(folder, without)}


def contents_digest(contents: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def difference(folder: Path, recorded: Mapping[str, str], *, without: str) -> str | None:
    """The first difference between a folder and its record, in words; None if there is none."""
    left = dict(recorded)
    try:
        for name, path, found in _walk(folder, without):
            line = left.pop(name, None)
            if line is None:
                return f"{name} does not belong there"
            if differs := _differs(name, path, found, line.split(" ")):
                return differs
    except OSError as error:
        return f"{_within(folder, error.filename)} cannot be read: {error.strerror}"
    return f"{min(left)} is missing" if left else None


def fingerprint(folder: Path) -> str:
    """A digest of the metadata of all files below a folder: only a disk error does not change it."""
    digest = hashlib.sha256()
    for name, _, found in _walk(folder, ""):
        known = (found.st_mode, found.st_uid, found.st_gid, found.st_size)
        digest.update(repr((name, *known, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)).encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of all blocks of 64 KiB that are not zeros, with their offsets: quick for sparse images."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        for offset in _data_blocks(file.fileno()):
            block = os.pread(file.fileno(), _BLOCK_BYTES, offset)
            if block != _ZEROS[: len(block)]:
                digest.update(offset.to_bytes(8, "big") + block)
    return digest.hexdigest()


def _data_blocks(descriptor: int) -> Iterator[int]:
    """Offsets of the blocks that are not holes."""
    end, offset = os.fstat(descriptor).st_size, 0
    while offset < end:
        try:
            start = os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole up to the end
            return
        hole = os.lseek(descriptor, start, os.SEEK_HOLE)
        first = max(offset, start // _BLOCK_BYTES * _BLOCK_BYTES)
        offset = -(-hole // _BLOCK_BYTES) * _BLOCK_BYTES
        yield from range(first, offset, _BLOCK_BYTES)


def _walk(folder: Path, without: str) -> Iterator[tuple[str, Path, os.stat_result]]:
    todo = [folder]
    while todo:
        here = todo.pop()
        for entry in sorted(os.scandir(here), key=lambda each: each.name):
            path = Path(entry.path)
            name = path.relative_to(folder).as_posix()
            if name == without:
                continue
            found = entry.stat(follow_symlinks=False)
            yield name, path, found
            if stat.S_ISDIR(found.st_mode):
                todo.append(path)


def _digest(path: Path, found: os.stat_result) -> str:
    if stat.S_ISREG(found.st_mode):
        return file_digest(path)
    if stat.S_ISLNK(found.st_mode):
        return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    return "-"


def _line(found: os.stat_result, digest: str) -> str:
    size = str(found.st_size) if digest != "-" else "-"
    return f"{found.st_mode:o} {size} {digest}"


def _differs(name: str, path: Path, found: os.stat_result, recorded: list[str]) -> str | None:
    mode, *_, size, digest = recorded  # older records have owner and group, too
    if f"{found.st_mode:o}" != mode:
        return f"{name} has the mode {found.st_mode:o} instead of {mode}"
    if size != "-" and str(found.st_size) != size:
        return f"{name} has {found.st_size} bytes instead of {size}"
    if digest != "-" and _digest(path, found) != digest:
        return f"{name} has changed"
    return None


def _within(folder: Path, name: str | None) -> str:
    """A file's name relative to the folder; `it` for the folder itself."""
    path = Path(name or folder)
    return "it" if path == folder or not path.is_relative_to(folder) else path.relative_to(folder).as_posix()
