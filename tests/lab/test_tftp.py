"""A card that the emulated Orange Pi's own U-Boot fetches by TFTP, in pieces, and how that fails.

The board's U-Boot is on that card: a flash must leave it whole.
"""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from lab_board import lab_board

from fsjoule import images
from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.lab import BoardStrategy
from fsjoule.lab.card import NamedCard
from fsjoule.model import MIB, ImageFacts
from fsjoule.virtual.lab.files import LabPaths

pytestmark = pytest.mark.slow

ENVIRONMENT = Path(__file__).parents[2] / "env" / "virtual-orangepi-network.yaml"
NAME = "orangepi-network"
LOADER_BYTES = 4 * MIB
PIECE_MIB = 2
TIMEOUT_S = 120.0


class _Board:
    def __init__(self, strategy: Any) -> None:
        self.strategy: BoardStrategy = strategy
        self.flasher: Any = strategy.flasher
        self.paths = LabPaths.of(NAME)

    def flash(self, image: Path) -> None:
        self.strategy.forget_card()
        self.strategy.card = NamedCard(image, ImageFacts("", image.name, "", str(image), {}, {}))
        self.strategy.transition("flashed")

    def holds(self, image: Path) -> bool:
        with self.paths.card.open("rb") as card:
            return card.read(image.stat().st_size) == image.read_bytes()

    def fetched(self) -> int:
        """Pieces that have been fetched since the lab is up."""
        return (self.paths.logs / "console.log").read_text(errors="replace").count("Bytes transferred")

    def cut_power(self) -> None:
        record = self.paths.read()
        assert record is not None
        request = urllib.request.Request(urljoin(record.board_status_url, "/outlet/0"), b"0", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass


@pytest.fixture(scope="module")
def loader() -> bytes:
    """The start of a card: partition table, SPL and U-Boot."""
    card = images.build_card("6.1", "ext4", recipe="orangepi-qemu", progress=print)
    with card.path.open("rb") as file:
        return file.read(LOADER_BYTES)


@pytest.fixture(scope="module")
def board(module_state: Path, loader: bytes) -> Generator[_Board]:
    """A board with its boot loader on a card that was written by hand."""
    assert module_state.is_dir()
    paths = LabPaths.of(NAME)
    paths.root.mkdir(parents=True)
    paths.card.write_bytes(loader)
    process.run(["truncate", "--size=64M", paths.card], timeout_s=30)
    with lab_board(NAME, ENVIRONMENT, "orangepi-network") as strategy:
        board = _Board(strategy)
        board.flasher.piece_mib = PIECE_MIB
        yield board


@pytest.fixture
def image(tmp_path: Path, loader: bytes) -> Path:
    """A card with four pieces that no earlier one had, behind the boot loader."""
    path = tmp_path / "card.img"
    path.write_bytes(loader + os.urandom(4 * PIECE_MIB * MIB))
    return path


def test_only_what_the_card_lacks_is_fetched_and_a_power_cut_in_the_midst_costs_only_the_rest(
    board: _Board, image: Path
) -> None:
    done = threading.Event()
    before = board.fetched()

    def cut() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not done.is_set() and time.monotonic() < deadline:
            if board.fetched() >= before + 2:
                board.cut_power()
                return
            time.sleep(0.05)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        with pytest.raises(LabError, match=r"the board has no power: its outlet is off"):
            board.flash(image)
    finally:
        done.set()
        thread.join()
    at_cut = board.fetched() - before
    assert 2 <= at_cut <= 4
    board.flash(image)
    assert board.holds(image)
    # The piece that was on its way when the power failed is fetched again.
    assert 4 <= board.fetched() - before <= 5


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("damaged", r"card-2 arrived damaged 3 times: its CRC is [0-9a-f]{8}, on the board [0-9a-f]{8}"),
        ("missing", r"cannot fetch card-2: .*File not found"),
    ],
)
def test_a_piece_that_arrives_damaged_or_not_at_all_is_named_and_not_written(
    board: _Board, image: Path, monkeypatch: pytest.MonkeyPatch, harm: str, says: str
) -> None:
    stage = board.flasher.tftp.stage

    def harmed(file: str) -> str:
        path = stage(file)
        if harm == "missing":
            Path(file).unlink()
        else:
            content = bytearray(Path(file).read_bytes())
            content[MIB] ^= 1
            Path(file).write_bytes(content)
        return path

    monkeypatch.setattr(board.flasher.tftp, "stage", harmed)
    before = board.paths.card.read_bytes()
    with pytest.raises(LabError, match=says) as caught:
        board.flash(image)
    assert caught.value.transient
    assert board.paths.card.read_bytes() == before
