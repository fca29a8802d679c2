"""The card and its mux: the card is the host's, the board's, or nobody's, and never two of these. Images of disks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from fsjoule.errors import ConfigError, LabError
from fsjoule.virtual.disks.loop_device import LoopDevice


class CardPosition(StrEnum):
    """Who has the card; the words of `usbsdmux`."""

    HOST = "host"
    DUT = "dut"
    OFF = "off"


class Card:
    """The card image behind the mux. Making the board's QEMU take or lose it is the board's business."""

    def __init__(self, image: Path, size_bytes: int) -> None:
        """Make an empty card if there is none. Raises ConfigError for an image that can be no card, LabError."""
        prepare_image(image, size_bytes)
        self.image = image
        self._loop = LoopDevice()
        self.position = CardPosition.DUT

    @property
    def host_device(self) -> Path:
        """Where the host finds the card while it is the host's."""
        return self._loop.path

    def release(self) -> None:
        """Nobody's from here on. Raises LabError (transient) if the host still has it open: it stays the host's."""
        if self.position is CardPosition.HOST:
            self._loop.detach()
        self.position = CardPosition.OFF

    def give(self, position: CardPosition) -> None:
        """From nobody's to `position`. Raises LabError."""
        if position is CardPosition.HOST:
            self._loop.attach(self.image)
        self.position = position

    def close(self) -> None:
        self._loop.close()


def prepare_image(image: Path, size_bytes: int) -> None:
    """Check the image, or make one. Raises ConfigError if QEMU would not take it, LabError if it cannot make it."""
    try:
        if not image.exists():
            with image.open("xb") as file:
                file.truncate(size_bytes)
        found_bytes = image.stat().st_size
    except OSError as error:
        raise LabError(f"the card image {image} cannot be made: {error}") from error
    if found_bytes == 0 or found_bytes & (found_bytes - 1):
        raise ConfigError(
            f"the card image {image} has {found_bytes} bytes, which is no power of two",
            hint="QEMU's SD card takes no other size; remove the file to get an empty card of card.size_mib",
        )


def prepare_disk(image: Path, size_bytes: int) -> None:
    """Make the image of a further disk, or give one that is there its size. Raises LabError if it cannot."""
    try:
        with image.open("ab") as file:
            file.truncate(size_bytes)
    except OSError as error:
        raise LabError(f"the disk image {image} cannot be made: {error}") from error
