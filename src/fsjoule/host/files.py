"""Files that are either whole or absent: written under another name, flushed to the disk, then renamed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PARTIAL_SUFFIX: Final = ".partial"


def write_file(path: Path, content: bytes) -> None:
    """Write `content` to `path`, or replace it, in one step. After an OSError `path` is unchanged."""
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    try:
        write_through(partial, content)
        partial.replace(path)
        flush_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def flush_folder(path: Path) -> None:
    """Flush a folder's entries to the disk, so that a rename in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_through(path: Path, content: bytes) -> None:
    # An old file of this name may be a link: it is removed, never written to.
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
