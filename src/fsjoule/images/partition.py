"""Stage `partition`: the root partition, made without mounting anything on the host. The entry holds `root.img`.

A root that dm-verity checks has the words of its table beside it, in `root.verity`.

A program of the host makes the filesystem from a folder; all files are root's, who is the board's only user. What no
program of the host can fill, the emulated board fills, once. It boots the card's kernel. Its card has the usual layout:
the files to copy are on the scratch partition, as ext4, and the root partition is the result.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_DNS, uuid5

from fsjoule.errors import ConfigError, HostError, MissingToolError
from fsjoule.filesystems import filesystem
from fsjoule.host import process
from fsjoule.host.cache.stages import build_once, cache_key, folder_digest
from fsjoule.images.card import copy_data
from fsjoule.images.emulator import emulator_program, needed_qemu
from fsjoule.images.initramfs import build_initramfs
from fsjoule.images.own_root import BUSYBOX, add_busybox, clear_links
from fsjoule.images.partition_table import partition_table
from fsjoule.images.read_only import add_hash_tree, make_image
from fsjoule.images.steady import IMAGE_TIME_S, steady_environment, steady_source
from fsjoule.images.userland import Userland
from fsjoule.kernels.kernel import KernelFiles
from fsjoule.kernels.recipe import Recipe
from fsjoule.model import MIB
from fsjoule.model.filesystem import Filesystem

_log: Final = logging.getLogger(__name__)

# Raise it when this file changes an entry's content.
STAGE_VERSION: Final = 7

_PROGRAM_FOLDERS: Final = ("usr/bin", "usr/sbin")
_PROGRAMS: Final = (b"\x7fELF", b"#!")
_MOUNT_POINTS: Final = ("dev", "proc", "sys", "run", "tmp", "mnt", "root")
_TIMEOUT_S: Final = 300.0
# Equal files, times and options give an equal image, byte for byte: its layout must not change the figures.
_UUID: Final = uuid5(NAMESPACE_DNS, "root.fsjoule.invalid")
_NO_FILES: Final[Mapping[str, bytes]] = {}


def partition_key(
    recipe: Recipe,
    filesystem: str,
    kernel: KernelFiles,
    userland: Userland,
    *,
    overlay: Path,
    fill: Path,
    more: Mapping[str, bytes] = _NO_FILES,
) -> str:
    """Digest of everything that goes into a root partition. `fill` is the board's program that fills it.

    `more` are files of a slot and the recipe's own, by their paths.
    """
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
    if kind.read_only:
        inputs["read_only"] = [kind.read_only, kind.after_make, kind.verity]
    if not kind.as_root.make:
        inputs["on_board"] = [kind.make[0], fill.read_text()]
    if more:
        inputs["more"] = {path: hashlib.sha256(content).hexdigest() for path, content in more.items()}
    return cache_key(inputs)


def root_partition(
    recipe: Recipe,
    filesystem: str,
    kernel: KernelFiles,
    userland: Userland,
    *,
    name: str,
    key: str,
    overlay: Path,
    fill: Path,
    more: Mapping[str, bytes] = _NO_FILES,
    root: Path | None = None,
) -> Path:
    """A root partition's image, from the usual cache or the one below `root`. Raises ConfigError, HostError."""

    def build(folder: Path) -> None:
        process.check_as_root("a root partition is made")
        _log.info("root partition: collecting files for %s", filesystem)
        tree = folder / "tree"
        _collect(tree, recipe, kernel, userland, overlay, more=more)
        _log.info("root partition: making %s, %s MiB", filesystem, recipe.card.root_mib)
        kind, image = recipe.filesystem(filesystem), folder / "root.img"
        steady = steady_environment()
        if kind.read_only or kind.as_root.make:
            make_filesystem(kind, tree, image, size_mib=recipe.card.root_mib, steady=steady)
        else:
            fill_on_board(
                recipe, kind, kernel, tree, image,
                busybox=userland.busybox, init=fill, steady=steady)  # fmt: skip
        if kind.verity:
            add_hash_tree(kind, image, room_mib=recipe.card.root_mib)
            fill_holes(image)
        shutil.rmtree(tree)

    return build_once("partition", name, key, build, root=root, read=True) / "root.img"


def _collect(
    tree: Path,
    recipe: Recipe,
    kernel: KernelFiles,
    userland: Userland,
    overlay: Path,
    *,
    more: Mapping[str, bytes] = _NO_FILES,
) -> None:
    """All files of the root filesystem, with their final modes and times. `as_root` sees them as root's."""
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
        _set_mode(path)
    for name in _MOUNT_POINTS:
        if (tree / name).is_symlink():  # of another distribution
            (tree / name).unlink()
        (tree / name).mkdir(exist_ok=True)
        _set_mode(tree / name)
    (tree / "tmp").chmod(0o1777)
    (tree / "root").chmod(0o700)
    (tree / "etc" / "hostname").write_text(recipe.hostname + "\n")
    _set_mode(tree / "etc" / "hostname")
    _link(tree / "etc" / "mtab", "/proc/self/mounts")
    clear_links(tree, tuple(more))
    _add_files(tree, more)
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
    user, group = os.geteuid(), os.getegid() if os.geteuid() else 0
    for path in (tree, *tree.rglob("*")):
        os.chown(path, user, group, follow_symlinks=False)  # a cache may be another user's, its folder another group's
        os.utime(path, (IMAGE_TIME_S, IMAGE_TIME_S), follow_symlinks=False)


def _add_files(tree: Path, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        if not (tree / path).parent.resolve().is_relative_to(tree.resolve()):
            raise ConfigError(f"/{path} cannot be written: a link of the root leads its folder elsewhere")
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).unlink(missing_ok=True)
        (tree / path).write_bytes(content)
        (tree / path).chmod(0o755 if content.startswith(_PROGRAMS) else 0o644)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _set_mode(path: Path) -> None:
    """A checkout may have modes from any umask."""
    if not path.is_symlink():
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)


_FILL_TIMEOUT_S: Final = 1200.0
_POLL_S: Final = 0.5
_FILLED: Final = "fsjoule: filled"
_FAILED: Final = ("initramfs: ", "Kernel panic")
_SOURCE: Final = filesystem("ext4")
# Its clock counts instructions, and its card answers within one: it always writes the same, at the same time.
_GUEST_TIME: Final = ("-icount", "shift=2,sleep=off", "-rtc", "base=2026-01-01T00:00:00,clock=vm", "-seed", "1")
_APPLETS: Final = ("chroot", "cp", "mkdir", "true", "umount")


def fill_on_board(
    recipe: Recipe,
    kind: Filesystem,
    kernel: KernelFiles,
    tree: Path,
    image: Path,
    *,
    busybox: Path,
    init: Path,
    steady: Mapping[str, str],
) -> None:
    """Make `image` with everything below `tree`. Equal files give an equal image, because the board is in guest time.

    Raises ConfigError if the recipe has no emulated board, HostError if the board fails.
    """
    emulated = recipe.emulator.board
    if not emulated:
        raise ConfigError(
            f"a root partition with {kind.name} is filled on an emulated board, and {recipe.name} has none",
            hint="add emulator.board to the recipe, with QEMU's arguments",
        )
    folder, layout = image.parent, recipe.card
    source, card, initrd, log = (folder / name for name in ("source.img", "fill.img", "fill.initrd", "fill.log"))
    make_filesystem(_SOURCE, tree, source, size_mib=layout.root_mib, steady=steady)
    with card.open("wb") as file:
        file.truncate(layout.size_mib * MIB)
    process.run(["sfdisk", "--quiet", card], input_bytes=partition_table(recipe).encode(), timeout_s=60)
    copy_data(source, card, layout.scratch_start_mib * MIB)
    modules = [*recipe.modules.card, *_SOURCE.modules, *kind.modules]
    initrd.write_bytes(build_initramfs(init=init, busybox=busybox, kernel=kernel, modules=modules, applets=_APPLETS))
    program = emulator_program(recipe, [needed_qemu(recipe, kernel.release)])
    _log.info("root partition: the emulated board makes %s and copies the files; this takes minutes", kind.name)
    _boot([program, *_arguments(recipe, kind, kernel, card, initrd)], log)
    with image.open("wb") as file:
        file.truncate(layout.root_mib * MIB)
    copy_data(card, image, 0, start=layout.root_start_mib * MIB, size=layout.root_mib * MIB)
    if kind.as_root.fill_holes:
        fill_holes(image)
    for each in (source, card, initrd, log):
        each.unlink()


def _arguments(recipe: Recipe, kind: Filesystem, kernel: KernelFiles, card: Path, initrd: Path) -> list[str | Path]:
    root = recipe.boot.root_device
    words = [
        *recipe.boot.arguments,
        f"fsjoule.source={_scratch_device(root)}",
        f"fsjoule.target={root}",
        f"fsjoule.filesystem={kind.kernel_type}",
        f"fsjoule.make={','.join((kind.make[0], *kind.as_root.options))}",
    ]
    tree = [] if kernel.device_tree is None else ["-dtb", kernel.device_tree]
    drive = f"format=raw,cache=unsafe,file={str(card).replace(',', ',,')}"
    return [
        *recipe.emulator.board,
        *_GUEST_TIME,
        *("-nodefaults", "-display", "none", "-nic", "none", "-no-reboot", "-serial", "stdio"),
        *("-kernel", kernel.image, "-initrd", initrd, *tree, "-append", " ".join(words)),
        *("-drive", f"{recipe.emulator.card},{drive}"),
    ]


def _scratch_device(root_device: str) -> str:
    """The partition behind the root's: `/dev/mmcblk1p2` -> `/dev/mmcblk1p3`."""
    return f"{root_device[:-1]}{int(root_device[-1]) + 1}"


def _boot(argv: Sequence[str | Path], log: Path) -> None:
    board = process.start(argv, log=log)
    try:
        end_s = time.monotonic() + _FILL_TIMEOUT_S
        while True:
            ended = board.poll() is not None  # it may say its last words after a look at the log
            said = log.read_text(errors="replace")
            if _FILLED in said:
                return
            if any(word in said for word in _FAILED) or ended or time.monotonic() > end_s:
                last = "".join(f"\n  console| {line}" for line in said.splitlines()[-10:])
                raise HostError(f"the emulated board did not fill the root partition{last}", transient=True)
            time.sleep(_POLL_S)
    finally:
        process.stop(board)


_PROTOTYPE: Final = "{prototype}"


def make_filesystem(kind: Filesystem, tree: Path, image: Path, *, size_mib: int, steady: Mapping[str, str]) -> None:
    """Make `image` with everything below `tree`, as the filesystem's `root` says, in the environment `steady`.

    Raises ConfigError for a filesystem that cannot be a root partition, HostError if its tools fail.
    """
    if kind.read_only:
        make_image(kind, tree, image, room_mib=size_mib, identity=_UUID, steady=steady)
        fill_holes(image)  # what was there on the card has another hash
        return
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
            process.run(process.as_root(argv), timeout_s=_TIMEOUT_S, env={**steady, **root.environment})
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
    """All files below `tree` for `mkfs.xfs -p`, owned by root. Raises HostError for blanks and special files."""
    return "\n".join(["/", "0 0", "d--755 0 0", *_xfs_entries(tree), "$", "$", ""])


def _xfs_entries(folder: Path) -> list[str]:
    lines: list[str] = []
    for path in sorted(folder.iterdir()):
        if any(character.isspace() for character in path.name):
            raise HostError(f"mkfs.xfs cannot read a file name with a blank: {path}")
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
            raise HostError(f"neither a file, a folder nor a link: {path}")
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
