"""Stage `partition`: the root partition, made without mounting anything. The entry holds `root.img`."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from fsjoule import process
from fsjoule.errors import ConfigError
from fsjoule.images.cache import Progress, build_once, cache_key, folder_digest
from fsjoule.images.kernel import Kernel
from fsjoule.images.recipe import Recipe
from fsjoule.images.userland import Userland
from fsjoule.model import MIB

# Raise it when this file changes what is in an entry.
STAGE_VERSION: Final = 2

_PROGRAM_FOLDERS: Final = ("usr/bin", "usr/sbin")
_MOUNT_POINTS: Final = ("dev", "proc", "sys", "run", "tmp", "mnt", "root")
_MAKE_TIMEOUT_S: Final = 300.0

# The same image every time, so that its layout does not move what is measured.
_UUID: Final = str(uuid.uuid5(uuid.NAMESPACE_DNS, "root.fsjoule.invalid"))


def partition_key(recipe: Recipe, filesystem: str, kernel: Kernel, userland: Userland, overlay: Path) -> str:
    """Digest of everything that goes into a root partition."""
    inputs = {
        "version": STAGE_VERSION,
        "kernel": kernel.key,
        "userland": userland.key,
        "applets": recipe.userland.applets,
        "hostname": recipe.hostname,
        "size_mib": recipe.card.root_mib,
        "filesystem": [filesystem, recipe.filesystem(filesystem).make_options],
        "overlay": folder_digest(overlay),
    }
    return cache_key(inputs)


def root_partition(
    recipe: Recipe,
    filesystem: str,
    kernel: Kernel,
    userland: Userland,
    *,
    name: str,
    key: str,
    overlay: Path,
    progress: Progress,
) -> Path:
    """The image of a root partition. Raises ConfigError for a filesystem that cannot be made without mounting it."""

    def build(folder: Path) -> None:
        progress(f"root partition: collecting files for {filesystem}")
        tree = folder / "tree"
        _collect(tree, recipe, kernel, userland, overlay)
        progress(f"root partition: making {filesystem}, {recipe.card.root_mib} MiB")
        _make(filesystem, tree, folder / "root.img", recipe)
        shutil.rmtree(tree)

    return build_once("partition", name, key, build, progress=progress) / "root.img"


def _collect(tree: Path, recipe: Recipe, kernel: Kernel, userland: Userland, overlay: Path) -> None:
    """All files of the root filesystem, with their final modes; all will be root's."""
    # Hard links are broken up: mkfs.btrfs --rootdir counts links that it does not make.
    parts = {"": userland.tree, "usr/lib/modules": kernel.modules_root / "lib" / "modules", ".": overlay}
    for place, source in parts.items():
        copy = ["cp", "--archive", "--no-preserve=links", "--no-target-directory", source, tree / place]
        process.run(copy, timeout_s=_MAKE_TIMEOUT_S)
    for name in _MOUNT_POINTS:
        (tree / name).mkdir(exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "root").chmod(0o700)
    (tree / "etc" / "hostname").write_text(recipe.hostname + "\n")
    (tree / "etc" / "mtab").symlink_to("/proc/self/mounts")
    present = {path.name for folder in _PROGRAM_FOLDERS for path in (tree / folder).iterdir()}
    for applet in recipe.userland.applets:
        if applet not in present:
            (tree / "usr" / "bin" / applet).symlink_to("busybox")
    (tree / "usr" / "sbin" / "init").symlink_to("../bin/busybox")


def _make(filesystem: str, tree: Path, image: Path, recipe: Recipe) -> None:
    maker = MAKERS.get(filesystem)
    if maker is None:
        raise ConfigError.unknown("root filesystem that can be made without mounting it", filesystem, MAKERS)
    with image.open("wb") as file:
        file.truncate(recipe.card.root_mib * MIB)
    maker(tree, image, recipe.filesystem(filesystem).make_options)


def _tool(argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
    # Below fakeroot an ordinary user's files are seen, and put into the image, as root's.
    prefix: list[str | Path] = [] if os.geteuid() == 0 else ["fakeroot", "--"]
    process.run([*prefix, *argv], timeout_s=_MAKE_TIMEOUT_S, env=env)


def _make_ext4(tree: Path, image: Path, options: Sequence[str]) -> None:
    # Journal and inode tables must be written as zeros, not left as holes: a block map leaves holes out, and what a
    # reused card has there could be taken for a journal that is still to be replayed.
    _tool(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-U", _UUID, "-E", f"hash_seed={_UUID}", *options, "-d", tree, image],
        env={"UNIX_IO_NOZEROOUT": "1"},
    )


def _make_btrfs(tree: Path, image: Path, options: Sequence[str]) -> None:
    _tool(["mkfs.btrfs", "-q", "-U", _UUID, *options, "--rootdir", tree, image])


MAKERS: Final[Mapping[str, Callable[[Path, Path, Sequence[str]], None]]] = {
    "ext4": _make_ext4,
    "btrfs": _make_btrfs,
}
