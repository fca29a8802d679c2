"""Files and folders that are either whole or absent: written under another name, flushed to the disk, then renamed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fsjoule.errors import ConfigError, StorageError
from fsjoule.host.files import PARTIAL_SUFFIX, flush_folder, write_through

_PROBE_BYTES: Final = 1 << 16  # about the facts of a run, before its first measurement


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder `path` with `files`, in one step. After an OSError there is no such folder."""
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    partial.mkdir()
    try:
        # Not by its name, which may lead elsewhere by now.
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for name, content in files.items():
                write_through(Path(f"/proc/self/fd/{descriptor}", name), content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        partial.rename(path)
        flush_folder(path.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_folder(path: Path) -> None:
    """Remove the folder `path`: it is gone in one step, and its files after that."""
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    path.rename(partial)
    flush_folder(path.parent)
    shutil.rmtree(partial)


def check_writable(folder: Path, option: str) -> None:
    """Try to write where an option points, before any work. Raises ConfigError, StorageError if the disk is full."""
    try:
        # A command that fails for another reason should leave no empty folder.
        for each in (folder, *folder.absolute().parents):
            if each.is_symlink() and not each.exists():
                to = f"{each} is a link to {each.readlink()}, which does not exist"
                raise ConfigError(f"{option}: {to}", hint="make that folder, or choose another")
        there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        with TemporaryDirectory(prefix=".fsjoule-", dir=there) as probe:
            Path(probe, "probe").write_bytes(bytes(_PROBE_BYTES))
    except OSError as error:
        said = f"{option}: nothing can be written in {folder}: {error.strerror}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(said, hint="make room on that disk, or choose another folder") from error
        raise ConfigError(said, hint="choose another folder") from error


# Gets what is done and of how much, in runs, folders or bytes: what it is, whoever watches knows.
Watcher = Callable[[int, int], None]


def unwatched(done: int, of: int) -> None:
    """A watcher for commands that nobody watches."""
    del done, of
