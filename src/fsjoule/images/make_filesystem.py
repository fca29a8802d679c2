"""Filesystem images from a folder, without mounting anything. Files keep their owners.

What a block map leaves out keeps the card's old content. A journal, a log or a checkpoint area that is only a hole in
the image would then hold that of an earlier life of the same image, with the same UUID, ready to be replayed. So each
of these makers writes as zeros whatever the filesystem might read before it has written it.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from fsjoule.errors import ConfigError, LabError
from fsjoule.host import process
from fsjoule.model import MIB

_TIMEOUT_S: Final = 300.0


class _Tool(Protocol):
    def __call__(self, *argv: str | Path, **environment: str) -> None:
        """Run a program with these variables besides."""


# Equal files, times and options give an equal image, byte for byte: its layout must not move what is measured.
_UUID: Final = str(uuid.uuid5(uuid.NAMESPACE_DNS, "root.fsjoule.invalid"))


def make_filesystem(
    filesystem: str, tree: Path, image: Path, *, size_mib: int, options: Sequence[str], steady: Mapping[str, str]
) -> None:
    """Make `image` with all that is below `tree`. `options` are for the filesystem's mkfs.

    `steady` is the environment of the programs that make it (`steady_environment`).

    Raises ConfigError for a filesystem that this module cannot make, LabError if its tools fail.
    """
    maker = MAKERS.get(filesystem)
    if maker is None:
        raise ConfigError.unknown("root filesystem that can be made without mounting it", filesystem, MAKERS)
    with image.open("wb") as file:
        file.truncate(size_mib * MIB)
    maker(tree, image, options, lambda *argv, **further: _tool(argv, {**steady, **further}))


def _tool(argv: Sequence[str | Path], env: Mapping[str, str]) -> None:
    process.run(argv, timeout_s=_TIMEOUT_S, env=env)


def _make_ext4(tree: Path, image: Path, options: Sequence[str], tool: _Tool) -> None:
    # Without the first variable mke2fs makes holes where it is asked for zeros: in the journal and the inode tables. Of
    # several -E it takes the last.
    extended = with_extended(options, f"hash_seed={_UUID}")
    tool("mke2fs", "-q", "-F", "-t", "ext4", "-U", _UUID, *extended, "-d", tree, image, UNIX_IO_NOZEROOUT="1")


def with_extended(options: Sequence[str], extended: str) -> list[str]:
    """mke2fs's options with one more extended option."""
    merged = list(options)
    if "-E" not in merged:
        return [*merged, "-E", extended]
    at = len(merged) - 1 - merged[::-1].index("-E") + 1
    merged[at] = f"{merged[at]},{extended}"
    return merged


def _make_btrfs(tree: Path, image: Path, options: Sequence[str], tool: _Tool) -> None:
    # Nothing to fill: a tree block is only read through a pointer that was written after it, with its generation.
    tool("mkfs.btrfs", "-q", "-U", _UUID, *options, "--rootdir", tree, image)


def _make_f2fs(tree: Path, image: Path, options: Sequence[str], tool: _Tool) -> None:
    tool("mkfs.f2fs", "-q", "-f", "-U", _UUID, *options, image)
    tool("sload.f2fs", "-f", tree, "-t", "/", image)
    # Checkpoints and the nodes that roll-forward recovery finds can be anywhere.
    fill_holes(image)


def _make_xfs(tree: Path, image: Path, options: Sequence[str], tool: _Tool) -> None:
    prototype = image.with_suffix(".proto")
    prototype.write_text(xfs_prototype(tree))
    tool("mkfs.xfs", "-q", "-f", "-m", f"uuid={_UUID}", *options, "-p", prototype, image)
    prototype.unlink()
    fill_holes(image)


def xfs_prototype(tree: Path) -> str:
    """All files below `tree` in the format of `mkfs.xfs -p`, owned by root.

    Raises LabError for names with blanks, which the format cannot hold, and for special files.
    """
    return "\n".join(["/", "0 0", "d--755 0 0", *_xfs_entries(tree), "$", "$", ""])


def _xfs_entries(folder: Path) -> list[str]:
    lines: list[str] = []
    for path in sorted(folder.iterdir()):
        if any(character.isspace() for character in path.name):
            raise LabError(f"mkfs.xfs cannot take a file name with a blank: {path}")
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
    """Write zeros wherever a sparse file has holes."""
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
    except OSError:  # ENXIO: nothing but a hole up to the end
        return end


MAKERS: Final[Mapping[str, Callable[[Path, Path, Sequence[str], _Tool], None]]] = {
    "ext4": _make_ext4,
    "btrfs": _make_btrfs,
    "f2fs": _make_f2fs,
    "xfs": _make_xfs,
}
