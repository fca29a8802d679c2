"""A flash in place after one that a power cut has ended, on an emulated Orange Pi with its real U-Boot."""

from __future__ import annotations

from pathlib import Path

import pytest
from flashing.in_place_states import Card, fat_head
from in_place_board import ORANGEPI, card, in_place_board

from fsjoule.bench.crash.update import SECTOR_BYTES
from fsjoule.host import process
from fsjoule.virtual.lab.files import LabPaths

pytestmark = pytest.mark.slow


def with_cut_flash(image: Path, copy: Path) -> Path:
    """A copy of a card image as a cut leaves it: the folder has a new file, whose cluster is still free in the FAT."""
    process.run(["cp", "--sparse=always", image, copy], timeout_s=120)
    there, file = Card(copy), copy.with_name("new")
    file.write_bytes(b"content")
    partition = f"{copy}@@{there.boot[0]}"
    process.run(["mmd", "-i", partition, "::second"], timeout_s=60)
    process.run(["mcopy", "-i", partition, file, "::second/new"], timeout_s=60)
    [(cluster, _, _)] = there.fat.clusters(["second/new"])
    reserved, tables, _, sectors = fat_head(there)
    with copy.open("r+b") as opened:
        for table in range(tables):
            opened.seek(there.boot[0] + (reserved + table * sectors) * SECTOR_BYTES + 2 * cluster)  # a FAT16
            opened.write(b"\0\0")
    return copy


@pytest.mark.usefixtures("state")
def test_a_flash_that_was_cut_is_repeated_on_a_repaired_fat(tmp_path: Path) -> None:
    kept, there = card("6.1"), Card(LabPaths.of(ORANGEPI).card)
    files = Card(kept).fat.files()
    image = with_cut_flash(kept, tmp_path / "card.img")
    assert "free cluster" in Card(image).judge_fat(files)[0]
    with in_place_board(image, tmp_path) as board:
        assert board.boot(card("6.12")).startswith("6.12.")
        board.off()
        assert there.judge_fat(files) == ("", "")
        assert "second/new" not in there.fat.files()
