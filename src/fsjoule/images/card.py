"""Stage `card`: partition table, boot partition and root partition in one image, with its block map and its facts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from fsjoule.host import process
from fsjoule.host.cache.stages import file_sha256
from fsjoule.images.initramfs import build_initramfs
from fsjoule.images.userland import Userland
from fsjoule.kernels.image import unpacked_kernel
from fsjoule.kernels.kernel import Kernel
from fsjoule.kernels.recipe import CardLayout, Recipe
from fsjoule.model import MIB, ImageFacts

# Raise it when this file, initramfs.py or kernels/image.py changes an entry's content.
STAGE_VERSION: Final = 5

_TIMEOUT_S: Final = 120.0
_DISK_ID: Final = "0x66736a6c"


def kernel_arguments(recipe: Recipe, filesystem: str) -> str:
    boot, kind = recipe.boot, recipe.filesystem(filesystem)
    words = [*boot.arguments, f"root={boot.root_device}", f"rootfstype={kind.kernel_type}", "rootwait", "rw"]
    if options := kind.as_root.mount_options:
        words.append(f"rootflags={','.join(options)}")
    return " ".join([*words, f"fsjoule.mark={boot.mark_device}"])


def extlinux_text(kernel_file: str, arguments: str, *, device_tree: bool) -> str:
    """extlinux.conf for U-Boot (its doc/develop/distro.rst); paths are on partition 1."""
    tree = "    FDT /board.dtb\n" if device_tree else ""
    return (
        "DEFAULT fsjoule\n"
        "LABEL fsjoule\n"
        f"    LINUX /{kernel_file}\n"
        "    INITRD /initrd.img\n"
        f"{tree}"
        f"    APPEND {arguments}\n"
    )


def partition_table(card: CardLayout) -> str:
    per_mib = MIB // 512
    return (
        f"label: dos\nlabel-id: {_DISK_ID}\nunit: sectors\n"
        f"start={card.boot_start_mib * per_mib}, size={card.boot_mib * per_mib}, type=e, bootable\n"
        f"start={card.root_start_mib * per_mib}, size={card.root_mib * per_mib}, type=83\n"
        f"start={card.scratch_start_mib * per_mib}, size={card.scratch_mib * per_mib}, type=83\n"
    )


def build_card_files(
    folder: Path,
    recipe: Recipe,
    choice: str,
    filesystem: str,
    *,
    kernel: Kernel,
    userland: Userland,
    root_image: Path,
    init: Path,
    steady: Mapping[str, str],
) -> None:
    boot = folder / "boot"
    boot.mkdir()
    modules = [*recipe.modules.card, *recipe.filesystem(filesystem).modules]
    initramfs = build_initramfs(init=init, busybox=userland.tree / "bin" / "busybox", kernel=kernel, modules=modules)
    (boot / "initrd.img").write_bytes(initramfs)
    tree = kernel.device_tree
    if tree is not None:
        shutil.copyfile(tree, boot / "board.dtb")
    kernel_file = _put_kernel(kernel, boot, recipe)
    entry = extlinux_text(kernel_file, kernel_arguments(recipe, filesystem), device_tree=tree is not None)
    (boot / "extlinux").mkdir()
    (boot / "extlinux" / "extlinux.conf").write_text(entry)

    card = folder / "card.img"
    _assemble(card, boot, root_image, recipe.card, steady)
    process.run(["bmaptool", "create", "-o", f"{card}.bmap", card], timeout_s=_TIMEOUT_S)
    facts = ImageFacts(
        recipe=recipe.name,
        kernel_choice=choice,
        kernel_package=kernel.package,
        card_sha256=file_sha256(card),
        checksums={
            **kernel.package_sha256,
            **{path.name: file_sha256(path) for path in boot.iterdir() if path.is_file()},
        },
        packages={**userland.packages, **kernel.packages},
    )
    (folder / "facts.json").write_text(json.dumps(asdict(facts), indent=2) + "\n")
    shutil.rmtree(boot)


def read_facts(folder: Path) -> ImageFacts:
    return ImageFacts(**json.loads((folder / "facts.json").read_text()))


def _put_kernel(kernel: Kernel, boot: Path, recipe: Recipe) -> str:
    image = kernel.image.read_bytes()
    unpacked = unpacked_kernel(image, memory_base=recipe.boot.memory_base, name=kernel.release)
    name, content = unpacked or (kernel.image.name, image)
    (boot / name).write_bytes(content)
    return name


def _assemble(card: Path, boot: Path, root_image: Path, layout: CardLayout, steady: Mapping[str, str]) -> None:
    with card.open("wb") as file:
        file.truncate(layout.size_mib * MIB)
    process.run(["sfdisk", "--quiet", card], input_bytes=partition_table(layout).encode(), timeout_s=_TIMEOUT_S)
    boot_image = card.with_name("boot.img")
    with boot_image.open("wb") as file:
        file.truncate(layout.boot_mib * MIB)
    process.run(["mkfs.vfat", "--invariant", "-n", "BOOT", boot_image], timeout_s=_TIMEOUT_S, env=steady)
    process.run(["mcopy", "-s", "-i", boot_image, *sorted(boot.iterdir()), "::"], timeout_s=_TIMEOUT_S, env=steady)
    copy_data(boot_image, card, layout.boot_start_mib * MIB)
    copy_data(root_image, card, layout.root_start_mib * MIB)
    boot_image.unlink()


def copy_data(source: Path, target: Path, offset: int, *, start: int = 0, size: int | None = None) -> None:
    """Copy data of a sparse file, `size` bytes from `start`, to `offset` in another; holes stay holes."""
    with source.open("rb") as reader, target.open("r+b") as writer:
        end = source.stat().st_size if size is None else start + size
        shift, position = offset - start, start
        while position < end:
            try:
                at = os.lseek(reader.fileno(), position, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole up to the end
                return
            position = min(end, os.lseek(reader.fileno(), at, os.SEEK_HOLE))
            while at < position:
                at += os.copy_file_range(reader.fileno(), writer.fileno(), position - at, at, shift + at)
