"""The card, its mux and its USB cable: the card belongs to the host, the board, or nobody. Images of disks."""

from __future__ import annotations

import logging
import re
from enum import StrEnum
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, InfrastructureError, LabError
from fsjoule.virtual.disks.loop_device import LoopDevice

_log: Final = logging.getLogger("fsjoule.virtual.board")
# Ctrl-C, a prompt and a board that starts again end the offer.
_EVENT: Final = re.compile(rb"(?P<offer>UMS: LUN \d+, [^\n]*count)|Operation aborted|\n=> |U-Boot (?:SPL )?20\d\d\.")
_KEPT_BYTES: Final = 200


class CardPosition(StrEnum):
    """The owner of the card, in the words of `usbsdmux`."""

    HOST = "host"
    DUT = "dut"
    OFF = "off"


class Card:
    """The card image behind the mux. The board itself inserts it into its QEMU and removes it."""

    def __init__(self, image: Path, size_bytes: int) -> None:
        """Make an empty card if there is none. Raises ConfigError for an image that cannot be a card, LabError."""
        prepare_image(image, size_bytes)
        self.image = image
        self._loop = LoopDevice()
        self.position = CardPosition.DUT
        self.on_usb = False

    @property
    def host_device(self) -> Path:
        """The card's device on the host while the host has it."""
        return self._loop.path

    def release(self) -> None:
        """Take the card from its owner. Raises LabError (transient) if the host still has it open: it keeps it."""
        if self.on_usb:
            self.leave_usb()
        if self.position is CardPosition.HOST:
            self._loop.detach()
        self.position = CardPosition.OFF

    def give(self, position: CardPosition) -> None:
        """Give a free card to `position`. Raises LabError."""
        if position is CardPosition.HOST:
            self._loop.attach(self.image)
        self.position = position

    def show_on_usb(self) -> None:
        """Show the board's card as a disk of the host, because the board offers it over USB. Raises LabError."""
        self._loop.attach(self.image)
        self.on_usb = True

    def leave_usb(self) -> None:
        """The board offers it no more, or the cable is out: its users on the host get errors. Raises LabError."""
        self._loop.unplug()
        self.on_usb = False

    def close(self) -> None:
        self._loop.close()


class UsbCable:
    """The cable from the board's USB device port to the exporter's computer: U-Boot offers the card over it.

    QEMU has no USB device port. U-Boot's command `ums` runs all the same and waits for a host: while it says that it
    offers the card, the card is a disk of the host. U-Boot, its prompt and its messages are the real ones.

    `hear` is for the thread of the console, the rest for the main one.
    """

    def __init__(self, card: Card) -> None:
        self._card = card
        self._heard = b""
        self._offered = False
        self.plugged = True

    def hear(self, output: bytes) -> None:
        """Follow the board's output on its console."""
        heard = self._heard + output
        end = 0
        for event in _EVENT.finditer(heard):
            self._offered = event["offer"] is not None
            end = event.end()
        self._heard = heard[end:][-_KEPT_BYTES:]

    def follow(self, *, running: bool) -> None:
        """Attach or detach the card. A card that cannot be attached is not offered again before the next `ums`."""
        if not running:
            self._heard, self._offered = b"", False
        wanted = self._offered and self.plugged
        if wanted == self._card.on_usb:
            return
        try:
            if wanted:
                self._card.show_on_usb()
            else:
                self._card.leave_usb()
        except InfrastructureError as error:
            self._offered = False
            _log.warning("USB: %s", error.what)
        else:
            _log.info("USB: the card is %s", "a disk of the host" if wanted else "gone")


def prepare_image(image: Path, size_bytes: int) -> None:
    """Check or make an image. Raises ConfigError if QEMU would refuse it, LabError if it cannot be made."""
    try:
        if not image.exists():
            with image.open("xb") as file:
                file.truncate(size_bytes)
        found_bytes = image.stat().st_size
    except OSError as error:
        raise LabError(f"the card image {image} cannot be made: {error}") from error
    if found_bytes == 0 or found_bytes & (found_bytes - 1):
        raise ConfigError(
            f"the card image {image} has {found_bytes} bytes, which is not a power of two",
            hint="QEMU's SD card has no other sizes; remove the file to get an empty card of card.size_mib",
        )


def prepare_disk(image: Path, size_bytes: int) -> None:
    """Make the image of a further disk, or resize an existing one. Raises LabError."""
    try:
        with image.open("ab") as file:
            file.truncate(size_bytes)
    except OSError as error:
        raise LabError(f"the disk image {image} cannot be made: {error}") from error
