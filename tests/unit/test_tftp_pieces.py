"""An image in pieces for U-Boot's memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsjoule.lab.sparse_image import Piece, pieces
from fsjoule.model import MIB

BLOCK_MAP = "<bmap><BlockSize> 4096 </BlockSize><BlockMap>{ranges}</BlockMap></bmap>"


def _image(folder: Path, size_bytes: int, ranges: str = "") -> Path:
    image = folder / "card.img"
    image.write_bytes(os.urandom(size_bytes))
    if ranges:
        image.with_name("card.img.bmap").write_text(BLOCK_MAP.format(ranges=ranges))
    return image


def test_an_image_without_a_block_map_is_cut_into_equal_pieces(tmp_path: Path) -> None:
    image = _image(tmp_path, 3 * MIB // 2 + 100)
    found = pieces(image, MIB)
    assert [piece.ranges for piece in found] == [((0, 2048),), ((2048, 1025),)]
    content = b"".join(piece.content(image) for piece in found)
    assert content == image.read_bytes().ljust(3073 * 512, b"\0")


def test_short_ranges_share_a_piece_and_long_ones_are_cut(tmp_path: Path) -> None:
    ranges = '<Range chksum="a"> 0-1 </Range><Range chksum="b"> 10 </Range><Range chksum="c"> 100-399 </Range>'
    image = _image(tmp_path, 2 * MIB, ranges)
    found = pieces(image, MIB)
    assert found == (Piece(((0, 16), (80, 8), (800, 2024))), Piece(((2824, 376),)))
    data = image.read_bytes()
    assert found[0].content(image) == data[:8192] + data[40960:45056] + data[800 * 512 : 2824 * 512]


@pytest.mark.parametrize("mib", [1, 2])
def test_a_range_that_ends_with_the_piece_leaves_no_empty_one(tmp_path: Path, mib: int) -> None:
    assert len(pieces(_image(tmp_path, 2 * MIB), mib * MIB)) == 2 // mib
