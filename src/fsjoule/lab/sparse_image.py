"""Android's sparse image of a card: mapped ranges only, as fastboot sends them and U-Boot writes them.

Source: system/core/libsparse/sparse_format.h of Android; U-Boot's lib/image-sparse.c reads it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from fsjoule.errors import LabError

SECTOR_BYTES: Final = 512
_BLOCK_BYTES: Final = 4096  # of bmaptool, and of a sparse image
_RANGE: Final = re.compile(r"<Range[^>]*>\s*(\d+)(?:-(\d+))?\s*</Range>")
_MAGIC: Final = 0xED26FF3A
_HEADER: Final = struct.Struct("<IHHHHIIII")
_CHUNK: Final = struct.Struct("<HHII")
_RAW: Final = 0xCAC1
_DONT_CARE: Final = 0xCAC3
_PART_BYTES: Final = 1 << 20


def mapped(image: Path) -> Iterator[tuple[int, int]]:
    """First sector and number of sectors of each range in an image's block map; of all of it without one."""
    sectors = -(-image.stat().st_size // SECTOR_BYTES)
    block_map = image.with_name(f"{image.name}.bmap")
    if not block_map.exists():
        yield 0, sectors
        return
    text = block_map.read_text()
    block = re.search(r"<BlockSize>\s*(\d+)\s*<", text)
    per_block = (int(block[1]) if block else _BLOCK_BYTES) // SECTOR_BYTES
    for each in _RANGE.finditer(text):
        first, last = int(each[1]), int(each[2] or each[1])
        start = first * per_block
        yield start, min((last + 1) * per_block, sectors) - start


@dataclass(frozen=True, slots=True)
class Piece:
    """Ranges of an image, first sector and number of sectors, that fit into the board's memory one behind the other."""

    ranges: tuple[tuple[int, int], ...]

    def content(self, image: Path) -> bytes:
        with image.open("rb") as file:
            parts: list[bytes] = []
            for first, count in self.ranges:
                file.seek(first * SECTOR_BYTES)
                parts.append(file.read(count * SECTOR_BYTES).ljust(count * SECTOR_BYTES, b"\0"))
        return b"".join(parts)


def pieces(image: Path, piece_bytes: int) -> tuple[Piece, ...]:
    """The mapped ranges of an image's block map, or all of it without one, in pieces of at most `piece_bytes`."""
    most = piece_bytes // SECTOR_BYTES
    found: list[list[tuple[int, int]]] = []
    room = 0
    for begin, count in mapped(image):
        first, end = begin, begin + count
        while first < end:
            if not room:
                found.append([])
                room = most
            taken = min(end - first, room)
            found[-1].append((first, taken))
            first += taken
            room -= taken
    return tuple(Piece(tuple(ranges)) for ranges in found)


def write_sparse(image: Path, file: Path, ranges: Iterable[tuple[int, int]]) -> None:
    """Write the sparse image of a card image with these ranges: first sector and number of sectors, in their order.

    Raises LabError for a size or a range that is not whole blocks of 4 KiB: what lies beside it would be overwritten.
    """
    size_bytes, per_block = image.stat().st_size, _BLOCK_BYTES // SECTOR_BYTES
    if size_bytes % _BLOCK_BYTES:
        raise LabError(f"{image} has {size_bytes} bytes: fastboot sends whole blocks of {_BLOCK_BYTES} bytes")
    blocks, chunks = size_bytes // _BLOCK_BYTES, list[tuple[int, int, int]]()
    end = 0
    for sector, count in [*ranges, (blocks * per_block, 0)]:
        if sector % per_block or count % per_block:
            raise LabError(
                f"fastboot sends whole blocks of {_BLOCK_BYTES} bytes, and {image} keeps sectors within one, "
                f"beside sectors {sector} to {sector + count - 1}",
                hint="use another flasher for a recipe with keep_sectors (docs/flashing.md)",
            )
        first, last = sector // per_block, (sector + count) // per_block
        chunks += [(_DONT_CARE, end, first - end)] if first > end else []
        chunks += [(_RAW, first, last - first)] if last > first else []
        end = last
    with image.open("rb") as source, file.open("wb") as target:
        target.write(_HEADER.pack(_MAGIC, 1, 0, _HEADER.size, _CHUNK.size, _BLOCK_BYTES, blocks, len(chunks), 0))
        for kind, first, count in chunks:
            size = count * _BLOCK_BYTES if kind == _RAW else 0
            target.write(_CHUNK.pack(kind, 0, count, _CHUNK.size + size))
            if size:
                source.seek(first * _BLOCK_BYTES)
                _copy(source, target, size)


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    while size > 0:
        part = source.read(min(size, _PART_BYTES))
        if not part:
            raise LabError("the card image has become shorter")
        target.write(part)
        size -= len(part)
