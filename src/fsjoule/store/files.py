"""Files and folders that are either whole or not there: written beside, flushed to the disk, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PARTIAL_SUFFIX: Final = ".partial"


def write_file(path: Path, content: bytes) -> None:
    """Put `content` at `path`, in place of what was there, in one step. On OSError `path` is as it was."""
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    try:
        _write_through(partial, content)
        partial.replace(path)
        flush_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder `path` with `files` in it, in one step. On OSError there is no such folder."""
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    partial.mkdir()
    try:
        for name, content in files.items():
            _write_through(partial / name, content)
        flush_folder(partial)
        partial.rename(path)
        flush_folder(path.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def flush_folder(path: Path) -> None:
    """Bring a folder's entries to the disk, so that a rename in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_through(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
