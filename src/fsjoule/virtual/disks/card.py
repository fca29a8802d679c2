"""The card and its mux: the card belongs to the host, the board, or nobody. Images of disks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from fsjoule.errors import ConfigError, LabError
from fsjoule.virtual.disks.loop_device import LoopDevice


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
