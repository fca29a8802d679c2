"""Sparse images, read by another implementation of Android's format."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from fsjoule.errors import LabError
from fsjoule.lab.sparse_image import mapped, write_sparse

BLOCK = 4096


def unpacked(sparse: bytes, before: bytes) -> tuple[bytes, int]:
    """What a card with the content `before` has after it was written, and how many bytes of it were written."""
    magic, major, _, head, chunk_head, block, blocks, chunks, _ = struct.unpack_from("<IHHHHIIII", sparse)
    assert (magic, major, head, chunk_head, block) == (0xED26FF3A, 1, 28, 12, BLOCK)
    card, at, offset, written = bytearray(before), 0, head, 0
    for _ in range(chunks):
        kind, _, count, size = struct.unpack_from("<HHII", sparse, offset)
        content = sparse[offset + chunk_head : offset + size]
        assert len(content) == {0xCAC1: count * block, 0xCAC3: 0}[kind]
        card[at : at + len(content)] = content
        written += len(content)
        at, offset = at + count * block, offset + size
    assert (offset, at) == (len(sparse), blocks * block)
    return bytes(card), written


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (None, range(8)),
        ("<Range>0</Range><Range>3-4</Range>", (0, 3, 4)),
        ("<Range> 2-7 </Range>", range(2, 8)),
        ("<Range>1</Range><Range>2</Range>", (1, 2)),
        ("", ()),
    ],
)
def test_only_mapped_blocks_are_written(ranges: str | None, expected: range, tmp_path: Path) -> None:
    image, sparse, before = tmp_path / "card.img", tmp_path / "card.simg", os.urandom(8 * BLOCK)
    image.write_bytes(os.urandom(8 * BLOCK))
    if ranges is not None:
        image.with_name("card.img.bmap").write_text(f"<bmap><BlockSize> 4096 </BlockSize>{ranges}</bmap>")
    write_sparse(image, sparse, mapped(image))
    card, written = unpacked(sparse.read_bytes(), before)
    assert written == len(expected) * BLOCK
    content = image.read_bytes()
    for block in range(8):
        at = slice(block * BLOCK, (block + 1) * BLOCK)
        assert card[at] == (content if block in expected else before)[at]


def test_sectors_within_a_block_are_not_overwritten(tmp_path: Path) -> None:
    image = tmp_path / "card.img"
    image.write_bytes(bytes(8 * BLOCK))
    with pytest.raises(LabError, match=r"keeps sectors within one, beside sectors 0 to 1"):
        write_sparse(image, tmp_path / "card.simg", [(0, 2), (64, 8)])


def test_an_image_without_whole_blocks_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "card.img"
    image.write_bytes(bytes(BLOCK + 512))
    with pytest.raises(LabError, match="whole blocks of 4096 bytes"):
        write_sparse(image, tmp_path / "card.simg", mapped(image))
