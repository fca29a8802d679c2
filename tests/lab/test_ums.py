"""A card that is written over USB while the board's real U-Boot runs `ums`, and how each step fails.

The board is the emulated SABRE Lite. A flash takes 15 to 30 s, most of them in U-Boot. `make test-flashing` has more.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from ums_board import RIGHT_MESSAGE, UmsBoard, ums_board

from fsjoule.errors import BoardError, LabError
from fsjoule.model import MIB


@pytest.fixture(scope="module")
def board(module_state: Path) -> Generator[UmsBoard]:
    assert module_state.is_dir()
    with ums_board() as board:
        yield board


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that writing it takes a moment."""
    path = tmp_path_factory.mktemp("image") / "card.img"
    path.write_bytes(os.urandom(MIB) * 256)
    return path


def test_u_boot_is_stopped_and_the_card_written_over_usb_and_the_board_is_off_again(
    board: UmsBoard, image: Path
) -> None:
    board.flash(image)
    assert board.holds(image)
    assert board.status["power"] == "off"
    assert not board.status["card"]["on_usb"]


@pytest.mark.slow
def test_a_cable_that_is_pulled_while_the_card_is_written_is_named_and_the_next_flash_is_fine(
    board: UmsBoard, image: Path
) -> None:
    with (
        board.fault(lambda: board.plug_usb(False), phase="usb", after_s=0.5),
        pytest.raises(LabError, match=RIGHT_MESSAGE["unplugged"]) as caught,
    ):
        board.flash(image)
    assert caught.value.transient
    assert board.status["power"] == "off"
    board.plug_usb(True)
    board.flash(image)
    assert board.holds(image)


@pytest.mark.parametrize(
    ("command", "says", "transient"),
    [
        ("umx 0 usb 0", r"has a U-Boot without the command umx \(Unknown command 'umx'\)", False),
        pytest.param(
            *("ums 0 mmc 7", r"refused 'ums 0 mmc 7': .*Bad device specification mmc 7", True), marks=pytest.mark.slow
        ),
    ],
)
def test_a_u_boot_that_does_not_offer_the_card_is_named(
    board: UmsBoard, image: Path, monkeypatch: pytest.MonkeyPatch, command: str, says: str, *, transient: bool
) -> None:
    flasher = board.flasher
    monkeypatch.setattr(flasher, "command", command)
    with pytest.raises(BoardError, match=says) as caught:
        board.flash(image)
    assert caught.value.transient == transient
    assert board.status["power"] == "off"
