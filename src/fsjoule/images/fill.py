"""Root partitions that no program of the host can fill: the emulated board fills them, once.

The board boots the card's kernel. Its card has the usual layout: the files to copy are on the scratch partition, as
ext4, and the root partition is the result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, LabError
from fsjoule.filesystems import filesystem
from fsjoule.host import process
from fsjoule.host.cache.stages import Progress
from fsjoule.images.card import copy_data
from fsjoule.images.emulator import emulator_program, needed_qemu
from fsjoule.images.initramfs import build_initramfs
from fsjoule.images.make_filesystem import fill_holes, make_filesystem
from fsjoule.images.partition_table import partition_table
from fsjoule.kernels.kernel import Kernel
from fsjoule.kernels.recipe import Recipe
from fsjoule.model import MIB
from fsjoule.model.filesystem import Filesystem

_TIMEOUT_S: Final = 1200.0
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
    kernel: Kernel,
    tree: Path,
    image: Path,
    *,
    busybox: Path,
    init: Path,
    steady: Mapping[str, str],
    progress: Progress,
) -> None:
    """Make `image` with everything below `tree`. Equal files give an equal image, because the board is in guest time.

    Raises ConfigError if the recipe has no emulated board, LabError if the board fails.
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
    program = emulator_program(recipe, [needed_qemu(recipe, kernel.release)], progress=progress)
    progress(f"root partition: the emulated board makes {kind.name} and copies the files; this takes minutes")
    _boot([program, *_arguments(recipe, kind, kernel, card, initrd)], log)
    with image.open("wb") as file:
        file.truncate(layout.root_mib * MIB)
    copy_data(card, image, 0, start=layout.root_start_mib * MIB, size=layout.root_mib * MIB)
    if kind.as_root.fill_holes:
        fill_holes(image)
    for each in (source, card, initrd, log):
        each.unlink()


def _arguments(recipe: Recipe, kind: Filesystem, kernel: Kernel, card: Path, initrd: Path) -> list[str | Path]:
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
        end_s = time.monotonic() + _TIMEOUT_S
        while True:
            ended = board.poll() is not None  # it may say its last words after a look at the log
            said = log.read_text(errors="replace")
            if _FILLED in said:
                return
            if any(word in said for word in _FAILED) or ended or time.monotonic() > end_s:
                last = "".join(f"\n  console| {line}" for line in said.splitlines()[-10:])
                raise LabError(f"the emulated board did not fill the root partition{last}", transient=True)
            time.sleep(_POLL_S)
    finally:
        process.stop(board)
