"""The block map of a card (bmap 2.0): which blocks a writer has to write, with their checksums."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from fsjoule.host import process
from fsjoule.kernels.card_layout import SECTOR_BYTES

_TIMEOUT_S: Final = 120.0
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
