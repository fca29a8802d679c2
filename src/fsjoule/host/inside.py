"""The one door for reading files of a run folder.

A run folder may have been copied from anywhere, so its content must not decide which other files are read. Every name
is one plain component, looked up in the folder opened before it. Links are not followed. Only regular files of limited
size are opened: a FIFO would block, and opening a device can have effects.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.host.plaintext import is_plain, plain_line

MIB: Final = 1 << 20
# A run of thousands of measurements takes a few MiB.
DOCUMENT_BYTES: Final = 16 * MIB
TRACE_BYTES: Final = 256 * MIB
ATTACHMENT_BYTES: Final = 64 * MIB

_LONGEST_NAME: Final = 255
# Limit for a folder, and for a list or object in a document: weeks of measurements.
MOST_ENTRIES: Final = 1 << 15
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link, which is not followed",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A folder's content, sorted. `refused` has all other entries by plain name, with the reason."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    refused: dict[str, str]


def shown(folder: Path, *names: str) -> str:
    """A path for messages: on one line, without control characters."""
    return plain_line("/".join((str(folder), *names)))


def wrong_name(name: str) -> str | None:
    """The reason why this cannot be the name of one of our files, or None."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return "its name is not a file name"
    if name.isascii() and name.isprintable() and len(name) <= _LONGEST_NAME:
        return None
    if not is_plain(name) or plain_line(name) != name:
        return "its name holds control characters, or is not UTF-8"
    if len(os.fsencode(name)) > _LONGEST_NAME:
        return "its name is too long"
    return None


def read_inside(folder: Path, *names: str, at_most: int) -> bytes | None:
    """A regular file's content, None if missing. Raises ResultError if unreadable, or over `at_most` bytes."""
    path = (str(folder), *names)
    try:
        with _opened(folder, *names[:-1]) as parent:
            _check_name(path)
            # Checked before it is opened: opening a device can have effects.
            _check_kind(os.stat(names[-1], dir_fd=parent, follow_symlinks=False).st_mode, stat.S_IFREG, path)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(names[-1], flags, dir_fd=parent), "rb") as file:
                found = os.fstat(file.fileno())
                _check_kind(found.st_mode, stat.S_IFREG, path)
                # The actual size: a read of `at_most` bytes would take all that memory at once.
                content = b"" if found.st_size > at_most else file.read(found.st_size)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ResultError(f"{shown(folder, *names)} cannot be read: {error.strerror or error}") from error
    if found.st_size > at_most:
        raise ResultError(f"{shown(folder, *names)} is larger than {at_most // MIB} MiB")
    return content


def list_inside(folder: Path, *names: str) -> Listed:
    """The content of the folder `folder`/`names`, empty if it is missing. Raises ResultError."""
    what = shown(folder, *names)
    try:
        with _opened(folder, *names) as opened, os.scandir(opened) as entries:
            modes = {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in _some(entries, what)}
    except FileNotFoundError:
        return Listed((), (), {})
    except OSError as error:
        raise ResultError(f"{what} cannot be read: {error.strerror or error}") from error
    kinds = {name: stat.S_IFMT(mode) for name, mode in sorted(modes.items())}
    refused = {name: why for name in kinds if (why := wrong_name(name))}
    ours = {name: kind for name, kind in kinds.items() if name not in refused}
    refused |= {name: f"it is {_kind(kind)}" for name, kind in ours.items() if kind not in (stat.S_IFDIR, stat.S_IFREG)}
    return Listed(
        folders=tuple(name for name, kind in ours.items() if kind == stat.S_IFDIR),
        files=tuple(name for name, kind in ours.items() if kind == stat.S_IFREG),
        refused={plain_line(name)[:_LONGEST_NAME]: why for name, why in refused.items()},
    )


@contextmanager
def _opened(folder: Path, *names: str) -> Generator[int]:
    """The folder `folder`/`names`, each component opened in the one before. `folder` itself is trusted."""
    descriptor = os.open(folder, _FOLDER)
    try:
        for i, name in enumerate(names, start=1):
            path = (str(folder), *names[:i])
            _check_name(path)
            _check_kind(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode, stat.S_IFDIR, path)
            below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _some(entries: Iterable[os.DirEntry[str]], what: str) -> Generator[os.DirEntry[str]]:
    for number, entry in enumerate(entries):
        if number == MOST_ENTRIES:
            raise ResultError(f"{what} holds more than {MOST_ENTRIES} entries")
        yield entry


def _check_name(path: tuple[str, ...]) -> None:
    if why := wrong_name(path[-1]):
        raise ResultError(f"{plain_line('/'.join(path))[: 2 * _LONGEST_NAME]} is not read: {why}")


def _check_kind(mode: int, wanted: int, path: tuple[str, ...]) -> None:
    found = stat.S_IFMT(mode)
    if found != wanted:
        raise ResultError(f"{plain_line('/'.join(path))} is not {_kind(wanted)}: it is {_kind(found)}")


def _kind(kind: int) -> str:
    return _KINDS.get(kind, "something unknown")
