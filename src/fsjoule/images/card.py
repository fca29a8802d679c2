"""Stage `card`: partition table, boot partition and root partition in one image, with its block map and its facts.

The block map (bmap 2.0) tells which blocks a writer has to write, with their checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Final

from fsjoule.host import process
from fsjoule.host.cache.stages import file_sha256
from fsjoule.images.boot_files import write_boot_files
from fsjoule.images.boot_loader import Loader
from fsjoule.images.initramfs import build_initramfs
from fsjoule.images.partition_table import partition_table
from fsjoule.images.read_only import hash_modules, initramfs_programs, root_modules, verity_file
from fsjoule.images.userland import Userland
from fsjoule.kernels.card_layout import SECTOR_BYTES
from fsjoule.kernels.kernel import KernelFiles
from fsjoule.kernels.recipe import Recipe
from fsjoule.model import MIB, ImageFacts

# Raise it when this file, boot_files.py, initramfs.py or kernels/image.py changes an entry's content.
STAGE_VERSION: Final = 6

_TIMEOUT_S: Final = 120.0


def build_card_files(
    folder: Path,
    recipe: Recipe,
    choice: str,
    filesystem: str,
    *,
    kernel: KernelFiles,
    userland: Userland,
    root_image: Path,
    init: Path,
    loader: Loader,
    steady: Mapping[str, str],
    boot_content: Mapping[str, bytes | Path],
) -> None:
    """Fill `folder`. `boot_content` are the boot partition's files of a card with slots, instead of the usual ones."""
    boot = folder / "boot"
    boot.mkdir()
    kind = recipe.filesystem(filesystem)
    modules = [*recipe.modules.card, *root_modules(kind), *hash_modules(kind, kernel.index())]
    programs = initramfs_programs(kind, userland.tree)
    initramfs = build_initramfs(
        init=init, busybox=userland.busybox, kernel=kernel, modules=modules, programs=programs)  # fmt: skip
    verity = verity_file(root_image).read_text() if kind.verity and verity_file(root_image).exists() else ""
    if boot_content:
        for name, content in boot_content.items():
            (boot / name).write_bytes(content if isinstance(content, bytes) else content.read_bytes())
        checksums = {each.name: file_sha256(each) for each in boot.iterdir()}
    else:
        checksums = write_boot_files(
            boot, recipe, filesystem, kernel=kernel, initramfs=initramfs, loader=loader, verity=verity)  # fmt: skip
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
        root_bytes=root_image.stat().st_size if kind.read_only else 0,
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
        if recipe.slots:
            # Written zeros: flashing removes the variables of before.
            first, last = recipe.slots.environment
            file.seek(first * SECTOR_BYTES)
            file.write(bytes((last - first + 1) * SECTOR_BYTES))
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


_NO_SUM: Final = "0" * 64


def make_block_map(card: Path, keep: tuple[int, int] | None) -> None:
    """Write `<card>.bmap`. The sectors `keep`, first and last, are left out: what is there on a card survives.

    bmaptool maps blocks of 4 KiB, and the first has both the partition table and the place of some boot loaders.
    So a map that leaves sectors out is made of sectors.
    """
    target = Path(f"{card}.bmap")
    if keep is None:
        process.run(["bmaptool", "create", "-o", target, card], timeout_s=_TIMEOUT_S)
        return
    with card.open("rb") as file:
        ranges = [part for mapped in _mapped(file) for part in _without(mapped, keep)]
        rows = "".join(
            f'        <Range chksum="{_sha256(file, first, last)}"> {first}-{last} </Range>\n' for first, last in ranges
        )
    blocks = sum(last - first + 1 for first, last in ranges)
    text = (
        '<?xml version="1.0" ?>\n<bmap version="2.0">\n'
        f"    <ImageSize> {card.stat().st_size} </ImageSize>\n"
        f"    <BlockSize> {SECTOR_BYTES} </BlockSize>\n"
        f"    <BlocksCount> {card.stat().st_size // SECTOR_BYTES} </BlocksCount>\n"
        f"    <MappedBlocksCount> {blocks} </MappedBlocksCount>\n"
        "    <ChecksumType> sha256 </ChecksumType>\n"
        f"    <BmapFileChecksum> {_NO_SUM} </BmapFileChecksum>\n"
        f"    <BlockMap>\n{rows}    </BlockMap>\n</bmap>\n"
    )
    # The map's own checksum is that of the map with zeros in its place.
    target.write_text(text.replace(_NO_SUM, hashlib.sha256(text.encode()).hexdigest(), 1))


def _mapped(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """First and last sector of each stretch of data in a sparse file."""
    end, position = os.fstat(file.fileno()).st_size, 0
    while position < end:
        try:
            start = os.lseek(file.fileno(), position, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole up to the end
            return
        position = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        yield start // SECTOR_BYTES, -(-position // SECTOR_BYTES) - 1


def _without(mapped: tuple[int, int], keep: tuple[int, int]) -> list[tuple[int, int]]:
    (first, last), (kept_first, kept_last) = mapped, keep
    parts = [(first, min(last, kept_first - 1)), (max(first, kept_last + 1), last)]
    return [(start, end) for start, end in parts if start <= end]


def _sha256(file: BinaryIO, first: int, last: int) -> str:
    digest, left = hashlib.sha256(), (last - first + 1) * SECTOR_BYTES
    file.seek(first * SECTOR_BYTES)
    while left and (block := file.read(min(left, 2**20))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()
