"""Another distribution's root filesystem: an archive (tar), or an image of ext2, ext3 or ext4.

Its programs and libraries are used as they are. fsjoule's own init starts them, with a busybox of its own: none of its
services runs beside a measurement.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, HostError
from fsjoule.host import process
from fsjoule.host.apt import PrivateApt, debian_archive
from fsjoule.host.cache.stages import file_sha256
from fsjoule.kernels.recipe import Recipe

_log: Final = logging.getLogger(__name__)

# Raise it when this file changes an entry's content.
STAGE_VERSION: Final = 2

# On the card, beside the root filesystem's own busybox if it has one.
BUSYBOX: Final = "usr/lib/fsjoule/busybox"

_PACKAGE: Final = "busybox-static"
_NEEDED: Final = ("sh", "fio")
_FOLDERS: Final = ("usr/bin", "usr/sbin")
_MOVED: Final = ("bin", "sbin", "lib", "lib64")
# fsjoule's own files go into these, outermost first.
_KEPT: Final = ("etc", "usr", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64")
_TIMEOUT_S: Final = 900.0
_EXT_MAGIC: Final = (0x438, b"\x53\xef")
# The machine in an ELF header, at byte 18, by Debian's architecture.
_MACHINES: Final = {"armhf": 40, "arm64": 183, "amd64": 62, "riscv64": 243}
_WORDS: Final = {40: "32-bit ARM", 183: "64-bit ARM", 62: "x86-64", 243: "RISC-V", 3: "x86", 8: "MIPS"}
_LINKS: Final = 8


def archive_sha256(recipe: Recipe, archive: Path) -> str:
    """The archive's digest. Raises ConfigError if it cannot be read."""
    try:
        return file_sha256(archive)
    except OSError as error:
        raise ConfigError(
            f"{recipe.file}: the root filesystem cannot be read: {archive}: {error.strerror}",
            hint="userland.archive is a full path, or a path below images/",
        ) from error


def unpack_root(archive: Path, tree: Path) -> None:
    """Unpack it with its modes, as this user's files. Raises ConfigError if it is no archive and no ext image."""
    _log.info("userland: unpacking %s", archive.name)
    tree.mkdir()
    at, magic = _EXT_MAGIC
    with archive.open("rb") as file:
        file.seek(at)
        image = file.read(len(magic)) == magic
    nodes = ("--anchored", "--exclude=./dev/*", "--exclude=dev/*")
    ours = ("--no-same-owner", "--same-permissions")
    commands = [["tar", "--extract", *ours, "--file", archive, "--directory", tree, *nodes]]
    if image:
        # debugfs also reads a damaged image, whose file `../name` it would write outside of the tree.
        commands = [["e2fsck", "-fn", archive], ["debugfs", "-R", f'rdump / "{tree}"', archive]]
    try:
        for command in commands:
            process.run(command, timeout_s=_TIMEOUT_S)
    except HostError as error:
        raise ConfigError(
            f"{archive} cannot be unpacked: {error.what}",
            hint="it must be a tar, or a whole image of ext2, 3 or 4",
        ) from error
    _check_folders(archive, tree)
    _anchor_links(tree)


def _check_folders(archive: Path, tree: Path) -> None:
    """Raise ConfigError if a folder for fsjoule's own files is a link to one of this computer."""
    for path in (tree / name for name in _KEPT):
        if path.is_symlink() and path.readlink().is_absolute():
            target = os.path.relpath(path.readlink(), f"/{path.parent.relative_to(tree)}")
            path.unlink()
            path.symlink_to(target)
        if not _is_inside(tree, path):
            raise ConfigError(
                f"the root filesystem {archive.name} cannot be used: /{path.relative_to(tree)} is a link to "
                f"{path.readlink()}, outside of it",
                hint="make it a folder",
            )


def matches(tree: Path, pattern: str) -> list[Path]:
    """Paths in the tree; none that a link leads to, outside of it."""
    return [path for path in tree.glob(pattern) if _is_inside(tree, path.parent)]


def clear_links(tree: Path, paths: Iterable[str]) -> None:
    """Remove links in the places of fsjoule's own files: what they lead to could be a file of this computer."""
    for path in (tree / name for name in paths):
        if path.is_symlink() and path.relative_to(tree).as_posix() not in _KEPT:
            path.unlink()


def _is_inside(tree: Path, path: Path) -> bool:
    return path.resolve().is_relative_to(tree.resolve())


def _anchor_links(tree: Path) -> None:
    """Let links in /bin, /sbin and /lib that lead out of them begin at the root: these folders move into /usr."""
    for top in _MOVED:
        for link in () if (tree / top).is_symlink() else (tree / top).rglob("*"):
            if not link.is_symlink() or link.readlink().is_absolute():
                continue
            on_board = os.path.normpath(f"/{link.parent.relative_to(tree)}/{link.readlink()}")
            if on_board.split("/")[1] not in _MOVED:
                link.unlink()
                link.symlink_to(on_board)


def check_root(recipe: Recipe, archive: Path, tree: Path) -> None:
    """Raise ConfigError for another architecture, and without a shell or fio. /bin is a link to /usr/bin already."""
    for name in _NEEDED:
        program = _program(tree, name)
        if program is None:
            raise ConfigError(
                f"the root filesystem {archive.name} has no {name}",
                hint='Buildroot: BR2_PACKAGE_FIO; Yocto: IMAGE_INSTALL:append = " fio"',
            )
        with program.open("rb") as file:
            head = file.read(20)
        machine, expected = int.from_bytes(head[18:20], "little"), _MACHINES.get(recipe.architecture)
        if head.startswith(b"\x7fELF") and expected is not None and machine != expected:
            raise ConfigError(
                f"the root filesystem {archive.name} is for {_WORDS.get(machine, f'ELF machine {machine}')} ({name}), "
                f"but {recipe.file} for {recipe.architecture}",
                hint="build it for the board's processor",
            )


def fetch_busybox(recipe: Recipe, folder: Path) -> dict[str, str]:
    """Put Debian's static busybox into the folder. Returns its version. Raises a transient HostError."""
    work = folder / "work"
    archive = debian_archive(recipe.userland.suite)
    apt = PrivateApt(work / "apt", archive=archive, architecture=recipe.architecture)
    _log.info("userland: fetching %s of %s", _PACKAGE, recipe.userland.suite)
    apt.update()
    [package] = apt.show([_PACKAGE])
    [file] = apt.download([package], work)
    process.run(["dpkg-deb", "--extract", file, work / "tree"], timeout_s=60)
    program = next(path for place in ("usr/bin", "bin") if (path := work / "tree" / place / "busybox").exists())
    shutil.copyfile(program, folder / "busybox")
    (folder / "busybox").chmod(0o755)
    shutil.rmtree(work)
    return {package.name: package.version}


def add_busybox(tree: Path, busybox: Path, overlay: Path) -> None:
    """Put fsjoule's busybox on the card, and let the overlay's scripts run with it instead of `/usr/bin/busybox`."""
    shutil.copyfile(busybox, tree / BUSYBOX)
    (tree / BUSYBOX).chmod(0o755)
    for file in (tree / path.relative_to(overlay) for path in overlay.rglob("*") if path.is_file()):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("#!/usr/bin/busybox", f"#!/{BUSYBOX}"), encoding="utf-8")


def _program(tree: Path, name: str) -> Path | None:
    places = (_followed(tree, tree / folder / name) for folder in _FOLDERS)
    return next(filter(None, places), None)


def _followed(tree: Path, path: Path) -> Path | None:
    """The file behind links that are meant for the board; None if it does not end at one."""
    for _ in range(_LINKS):
        if not path.is_symlink():
            return path if path.is_file() else None
        target = path.readlink()
        path = tree / str(target).lstrip("/") if target.is_absolute() else path.parent / target
    return None
