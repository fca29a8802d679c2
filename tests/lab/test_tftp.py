"""A card that the emulated Orange Pi's own U-Boot fetches by TFTP, in pieces, and how that fails.

The board's U-Boot is on that card: a flash must leave it whole.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from tftp_board import TftpBoard, loader_of, tftp_board

from fsjoule.errors import LabError
from fsjoule.model import MIB

pytestmark = pytest.mark.slow

CARD_MIB = 64
PIECE_MIB = 2
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def loader() -> bytes:
    return loader_of("6.1")


@pytest.fixture(scope="module")
def board(module_state: Path, loader: bytes) -> Generator[TftpBoard]:
    assert module_state.is_dir()
    with tftp_board(loader, CARD_MIB) as board:
        board.flasher.piece_mib = PIECE_MIB
        yield board


@pytest.fixture
def image(tmp_path: Path, loader: bytes) -> Path:
    """A card with four pieces that no earlier one had, behind the boot loader."""
    path = tmp_path / "card.img"
    path.write_bytes(loader + os.urandom(4 * PIECE_MIB * MIB))
    return path


def test_only_what_the_card_lacks_is_fetched_and_a_power_cut_in_the_midst_costs_only_the_rest(
    board: TftpBoard, image: Path
) -> None:
    before = board.fetched()
    with (
        board.power_cut_after(2, timeout_s=TIMEOUT_S),
        pytest.raises(LabError, match=r"the board has no power: its outlet is off"),
    ):
        board.flash(image)
    at_cut = board.fetched() - before
    assert 2 <= at_cut <= 4
    board.flash(image)
    assert board.holds(image)
    assert not list(board.paths.tftp.iterdir()), "no piece stays at the server"
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
    board: TftpBoard, image: Path, monkeypatch: pytest.MonkeyPatch, harm: str, says: str
) -> None:
    stage = board.flasher.tftp.stage

    def harmed(file: str) -> str:
        path = stage(file)
        if harm == "missing":
            Path(file).resolve().unlink()
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


def test_a_card_that_is_smaller_than_the_image_is_named_before_anything_is_written(
    board: TftpBoard, image: Path
) -> None:
    os.truncate(image, (CARD_MIB + 1) * MIB)
    before, fetched = board.paths.card.read_bytes(), board.fetched()
    with pytest.raises(LabError, match=r"has no sector 133119, the image's last, on its card: .*ERROR"):
        board.flash(image)
    assert board.fetched() == fetched
    assert board.paths.card.read_bytes() == before
