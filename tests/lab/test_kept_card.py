"""A card that was written by hand and stays in the board."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from lab_board import lab_board

from fsjoule import images
from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.images import CardImage
from fsjoule.lab import BoardStrategy
from fsjoule.lab.flashers import Partition, boot_partition
from fsjoule.model import MIB
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths

pytestmark = pytest.mark.slow

ENVIRONMENT = Path(__file__).parents[2] / "env" / "virtual.yaml"
NAME = "virtual"
MUX = """\
      USBSDMuxDriver: {}
      USBStorageDriver: {}
      SdMuxFlasher:
        write_timeout: 300
"""


@pytest.fixture(scope="module")
def card() -> CardImage:
    return images.build_card("6.1", "ext4")


@pytest.fixture(scope="module")
def board(module_state: Path, card: CardImage) -> Generator[BoardStrategy]:
    """A board with a card that was in it before the lab was up, and a file that has no mux."""
    paths = LabPaths.of(NAME)
    paths.root.mkdir(parents=True)
    process.run(["cp", "--sparse=always", card.path, paths.card], timeout_s=120)
    text = ENVIRONMENT.read_text()
    assert text.count(MUX) == 1
    file = module_state / "env.yaml"
    file.write_text(text.replace(MUX, "      KeptCard: {}\n"))
    with lab_board(NAME, file) as strategy:
        yield strategy


def test_a_card_that_is_the_runs_is_used_and_another_one_is_refused_after_the_first_boot(
    board: BoardStrategy, card: CardImage
) -> None:
    board.card = card
    board.transition("flashed")
    board.transition("booted")
    board.transition("off")
    boot = boot_partition(card.path)
    with LabPaths.of(NAME).card.open("r+b") as file:
        # The end of the partition, which has no file; the board still boots.
        file.seek((boot.start + boot.size - 1) * boot.sector_bytes)
        assert not any(file.read(512))
        file.seek(-512, os.SEEK_CUR)
        file.write(b"another")
    board.forget_card()
    with pytest.raises(LabError, match=r"the card in the board is not the run's: /dev/mmcblk1p1 differs") as caught:
        board.transition("booted")
    assert "write the card by hand: bmaptool copy" in str(caught.value)
    status = lab.status(NAME).board
    assert status is not None
    assert status["power"] == "off"


def test_the_boot_partition_of_an_image(card: CardImage) -> None:
    assert boot_partition(card.path) == Partition(1, 4 * MIB // 512, 64 * MIB // 512, bootable=True)
