"""The emulated USB cable follows U-Boot's own words; the card is a real file."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from fsjoule.model import MIB
from fsjoule.virtual.disks.card import Card, UsbCable

OFFER = b"=> ums 0 usb 0\r\nUMS: LUN 0, dev usb 0, hwpart 0, sector 0x0, count 0x200000\r\nUSB EHCI 1.00\r\n|\b/\b"


@pytest.fixture
def card(tmp_path: Path) -> Generator[Card]:
    card = Card(tmp_path / "card.img", MIB, tmp_path / "card")
    yield card
    card.close()


@pytest.fixture
def cable(card: Card) -> UsbCable:
    return UsbCable(card)


def _shown(cable: UsbCable, card: Card, said: bytes, *, running: bool = True) -> bool:
    cable.hear(said)
    cable.follow(running=running)
    return card.on_usb


@pytest.mark.parametrize(
    "end",
    [b"CTRL+C - Operation aborted\r\n", b"\r\n=> ", b"\r\nU-Boot SPL 2025.01\r\n", b"\r\n\r\nU-Boot 2025.01-3 (Jun"],
)
def test_the_card_is_the_hosts_from_the_offer_to_its_end(cable: UsbCable, card: Card, end: bytes) -> None:
    assert not _shown(cable, card, b"\r\n=> ")
    assert _shown(cable, card, OFFER)
    assert _shown(cable, card, b"-\b" * 1000)
    assert not _shown(cable, card, end)
    assert not _shown(cable, card, b"|\b")


def test_an_offer_may_come_in_pieces(cable: UsbCable, card: Card) -> None:
    for each in OFFER:
        _shown(cable, card, bytes([each]))
    assert card.on_usb


def test_a_refusal_is_no_offer(cable: UsbCable, card: Card) -> None:
    assert not _shown(cable, card, b"=> ums 0 mmc 0\r\n** Bad device specification mmc 0 **\r\n=> ")


def test_without_power_there_is_no_offer_and_the_next_one_counts(cable: UsbCable, card: Card) -> None:
    assert _shown(cable, card, OFFER)
    assert not _shown(cable, card, b"", running=False)
    assert not _shown(cable, card, b"|\b")
    assert _shown(cable, card, OFFER)


def test_a_pulled_cable_hides_the_card_until_it_is_plugged_in_again(cable: UsbCable, card: Card) -> None:
    assert _shown(cable, card, OFFER)
    cable.plugged = False
    assert not _shown(cable, card, b"|\b")
    cable.plugged = True
    assert _shown(cable, card, b"/\b")


def test_a_card_that_cannot_be_shown_is_not_tried_until_the_next_offer(cable: UsbCable, card: Card) -> None:
    gone = card.image.rename(card.image.with_name("gone.img"))
    assert not _shown(cable, card, OFFER)
    gone.rename(card.image)
    assert not _shown(cable, card, b"|\b")
    assert _shown(cable, card, OFFER)
