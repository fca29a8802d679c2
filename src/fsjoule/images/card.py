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
from fsjoule.host.cache.stages import Progress, file_sha256
from fsjoule.images.block_map import make_block_map
from fsjoule.images.boot_files import write_boot_files
from fsjoule.images.boot_loader import Loader
from fsjoule.images.initramfs import build_initramfs
from fsjoule.images.partition_table import partition_table
from fsjoule.images.userland import Userland
from fsjoule.kernels.card_layout import SECTOR_BYTES
from fsjoule.kernels.kernel import Kernel
from fsjoule.kernels.recipe import Recipe
from fsjoule.model import MIB, ImageFacts

# Raise it when this file, boot_files.py, initramfs.py or kernels/image.py changes an entry's content.
STAGE_VERSION: Final = 5

_TIMEOUT_S: Final = 120.0


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
    loader: Loader,
    steady: Mapping[str, str],
    progress: Progress,
) -> None:
    boot = folder / "boot"
    boot.mkdir()
    modules = [*recipe.modules.card, *recipe.filesystem(filesystem).modules]
    initramfs = build_initramfs(init=init, busybox=userland.busybox, kernel=kernel, modules=modules)
    checksums = write_boot_files(
        boot, recipe, filesystem, kernel=kernel, initramfs=initramfs, loader=loader, progress=progress
    )
    card = folder / "card.img"
    _assemble(card, boot, root_image, recipe=recipe, loader=loader, steady=steady)
    make_block_map(card, recipe.boot_loader.keep_sectors)
    facts = ImageFacts(
        recipe=recipe.name,
        kernel_choice=choice,
        kernel_package=kernel.package,
        card_sha256=file_sha256(card),
        checksums={**kernel.package_sha256, **userland.sha256, **checksums, **loader.checksums},
        packages={**userland.packages, **kernel.packages, **loader.packages},
    )
    (folder / "facts.json").write_text(json.dumps(asdict(facts), indent=2) + "\n")
    shutil.rmtree(boot)


def read_facts(folder: Path) -> ImageFacts:
    return ImageFacts(**json.loads((folder / "facts.json").read_text()))


def _assemble(
    card: Path, boot: Path, root_image: Path, *, recipe: Recipe, loader: Loader, steady: Mapping[str, str]
) -> None:
    layout = recipe.card
    with card.open("wb") as file:
        file.truncate(layout.size_mib * MIB)
    process.run(["sfdisk", "--quiet", card], input_bytes=partition_table(recipe).encode(), timeout_s=_TIMEOUT_S)
    with card.open("r+b") as file:
        for piece in loader.files:
            if piece.piece.sector is not None:
                file.seek(piece.piece.sector * SECTOR_BYTES)
                file.write(piece.content)
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
