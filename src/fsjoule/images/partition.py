"""Stage `partition`: the root partition, made without mounting anything on the host. The entry holds `root.img`."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import asdict
from pathlib import Path
from typing import Final

from fsjoule.host import process
from fsjoule.host.cache.stages import Progress, build_once, cache_key, folder_digest
from fsjoule.images.fill import fill_on_board
from fsjoule.images.make_filesystem import make_filesystem
from fsjoule.images.own_root import BUSYBOX, add_busybox, clear_links
from fsjoule.images.steady import IMAGE_TIME_S, steady_environment, steady_source
from fsjoule.images.userland import Userland
from fsjoule.kernels.kernel import Kernel
from fsjoule.kernels.recipe import Recipe

# Raise it when this file, make_filesystem.py or fill.py changes an entry's content.
STAGE_VERSION: Final = 6

_PROGRAM_FOLDERS: Final = ("usr/bin", "usr/sbin")
_MOUNT_POINTS: Final = ("dev", "proc", "sys", "run", "tmp", "mnt", "root")
_TIMEOUT_S: Final = 300.0


def partition_key(
    recipe: Recipe, filesystem: str, kernel: Kernel, userland: Userland, *, overlay: Path, fill: Path
) -> str:
    """Digest of everything that goes into a root partition. `fill` is the board's program that fills it."""
    kind = recipe.filesystem(filesystem)
    inputs: dict[str, object] = {
        "version": STAGE_VERSION,
        "kernel": kernel.content,
        "userland": userland.digest,
        "applets": recipe.userland.applets,
        "hostname": recipe.hostname,
        "size_mib": recipe.card.root_mib,
        "filesystem": [kind.name, kind.identity, asdict(kind.as_root)],
        "overlay": folder_digest(overlay),
        "steady": steady_source(),
    }
    if not kind.as_root.make:
        inputs["on_board"] = [kind.make[0], fill.read_text()]
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
    fill: Path,
    progress: Progress,
    root: Path | None = None,
) -> Path:
    """A root partition's image, from the usual cache or the one below `root`. Raises ConfigError, LabError."""

    def build(folder: Path) -> None:
        process.require_root("a root partition is made")
        progress(f"root partition: collecting files for {filesystem}")
        tree = folder / "tree"
        _collect(tree, recipe, kernel, userland, overlay)
        progress(f"root partition: making {filesystem}, {recipe.card.root_mib} MiB")
        kind, image = recipe.filesystem(filesystem), folder / "root.img"
        steady = steady_environment(progress=progress)
        if kind.as_root.make:
            make_filesystem(kind, tree, image, size_mib=recipe.card.root_mib, steady=steady)
        else:
            fill_on_board(
                recipe, kind, kernel, tree, image,
                busybox=userland.busybox, init=fill, steady=steady, progress=progress,
            )  # fmt: skip
        shutil.rmtree(tree)

    return build_once("partition", name, key, build, progress=progress, root=root, read=True) / "root.img"


def _collect(tree: Path, recipe: Recipe, kernel: Kernel, userland: Userland, overlay: Path) -> None:
    """All files of the root filesystem, with their final owners, modes and times."""
    # Hard links are broken up: mkfs.btrfs --rootdir counts links but does not make them.
    parts = {"": userland.tree, "usr/lib/modules": kernel.modules_root / "lib" / "modules", ".": overlay}
    paths = [path.relative_to(overlay) for path in overlay.rglob("*")]
    for place, source in parts.items():
        clear_links(tree, (*map(str, paths), "usr/lib/modules", "etc/hostname", BUSYBOX))
        # Holes are filled: their places depend on how the cache was copied, and mkfs would keep them.
        copy = ("cp", "--archive", "--no-preserve=links", "--sparse=never", "--no-target-directory")
        process.run([*copy, source, tree / place], timeout_s=_TIMEOUT_S)
    modules = tree / "usr" / "lib" / "modules"
    ours = [tree, modules, *modules.rglob("*"), *(tree / path for path in paths)]
    for path in ours:
        _give_to_root(path)
    for name in _MOUNT_POINTS:
        if (tree / name).is_symlink():  # of another distribution
            (tree / name).unlink()
        (tree / name).mkdir(exist_ok=True)
        _give_to_root(tree / name)
    (tree / "tmp").chmod(0o1777)
    (tree / "root").chmod(0o700)
    (tree / "etc" / "hostname").write_text(recipe.hostname + "\n")
    _give_to_root(tree / "etc" / "hostname")
    _link(tree / "etc" / "mtab", "/proc/self/mounts")
    own = BUSYBOX if recipe.userland.archive else None
    present = {path.name for folder in _PROGRAM_FOLDERS for path in (tree / folder).iterdir()}
    for applet in recipe.userland.applets:
        if applet not in present:
            (tree / "usr" / "bin" / applet).symlink_to("busybox" if own is None else f"../../{own}")
    if own is not None and "busybox" not in present:
        (tree / "usr" / "bin" / "busybox").symlink_to(f"../../{own}")
    if own is not None:
        add_busybox(tree, userland.busybox, overlay)
    _link(tree / "usr" / "sbin" / "init", "../bin/busybox" if own is None else f"../../{own}")
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (IMAGE_TIME_S, IMAGE_TIME_S), follow_symlinks=False)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _give_to_root(path: Path) -> None:
    """A checkout or a cache may belong to any user, with modes from any umask."""
    os.chown(path, 0, 0, follow_symlinks=False)
    if not path.is_symlink():
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
