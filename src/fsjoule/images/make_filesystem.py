"""Filesystem images from a folder, without mounting anything. Files keep their owners."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_DNS, uuid5

from fsjoule.errors import LabError, MissingToolError
from fsjoule.host import process
from fsjoule.model import MIB
from fsjoule.model.filesystem import Filesystem

_TIMEOUT_S: Final = 300.0
# Equal files, times and options give an equal image, byte for byte: its layout must not change the figures.
_UUID: Final = uuid5(NAMESPACE_DNS, "root.fsjoule.invalid")
_PROTOTYPE: Final = "{prototype}"


def make_filesystem(kind: Filesystem, tree: Path, image: Path, *, size_mib: int, steady: Mapping[str, str]) -> None:
    """Make `image` with everything below `tree`, as the filesystem's `root` says, in the environment `steady`.

    Raises ConfigError for a filesystem that cannot be a root partition, LabError if its tools fail.
    """
    root = kind.as_root
    with image.open("wb") as file:
        file.truncate(size_mib * MIB)
    prototype = image.with_suffix(".proto")
    if _PROTOTYPE in root.target:
        prototype.write_text(xfs_prototype(tree))

    def told(words: tuple[str, ...]) -> list[str]:
        return [word.format(image=image, tree=tree, prototype=prototype, uuid=_UUID) for word in words]

    options = with_extended(root.options, *told((root.extended,)))
    for argv in ([*told((*root.make, *kind.identity)), *options, *told(root.target)], told(root.copy)):
        if not argv:
            continue
        try:
            process.run(argv, timeout_s=_TIMEOUT_S, env={**steady, **root.environment})
        except MissingToolError as error:
            raise MissingToolError(argv[0], kind.packages[0]) from error
    prototype.unlink(missing_ok=True)
    if root.fill_holes:
        fill_holes(image)


def with_extended(options: Sequence[str], extended: str) -> list[str]:
    merged = list(options)
    if not extended:
        return merged
    if "-E" not in merged:
        return [*merged, "-E", extended]
    at = len(merged) - merged[::-1].index("-E")
    merged[at] = f"{merged[at]},{extended}"
    return merged


def xfs_prototype(tree: Path) -> str:
    """All files below `tree` for `mkfs.xfs -p`, owned by root. Raises LabError for blanks and special files."""
    return "\n".join(["/", "0 0", "d--755 0 0", *_xfs_entries(tree), "$", "$", ""])


def _xfs_entries(folder: Path) -> list[str]:
    lines: list[str] = []
    for path in sorted(folder.iterdir()):
        if any(character.isspace() for character in path.name):
            raise LabError(f"mkfs.xfs cannot read a file name with a blank: {path}")
        mode = path.lstat().st_mode
        flags = ("u" if mode & stat.S_ISUID else "-") + ("g" if mode & stat.S_ISGID else "-")
        suffix = f"{flags}{mode & 0o777:03o} 0 0"
        if stat.S_ISLNK(mode):
            lines.append(f"{path.name} l{suffix} {path.readlink()}")
        elif stat.S_ISREG(mode):
            lines.append(f"{path.name} -{suffix} {path}")
        elif stat.S_ISDIR(mode):
            lines += [f"{path.name} d{suffix}", *_xfs_entries(path), "$"]
        else:
            raise LabError(f"neither a file, a folder nor a link: {path}")
    return lines


def fill_holes(image: Path) -> None:
    end = image.stat().st_size
    zeros = bytes(MIB)
    with image.open("r+b") as file:
        position = 0
        while position < end:
            hole = os.lseek(file.fileno(), position, os.SEEK_HOLE)
            if hole >= end:
                return
            position = _next_data(file.fileno(), hole, end)
            while hole < position:
                hole += os.pwrite(file.fileno(), zeros[: position - hole], hole)


def _next_data(descriptor: int, position: int, end: int) -> int:
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError:  # ENXIO: only a hole up to the end
        return end
