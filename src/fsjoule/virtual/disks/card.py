"""The card, its mux and its USB cable: the card belongs to the host, the board, or nobody. Images of disks.

The host's side is a link to the card's image, which is there while the host has the card. It needs no loop device, so
nobody has to be root.
"""

from __future__ import annotations

import logging
import os
import re
import time
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, InfrastructureError, LabError
from fsjoule.host.locks import command

_log: Final = logging.getLogger("fsjoule.virtual.board")
# Ctrl-C, a prompt and a board that starts again end the offer.
_EVENT: Final = re.compile(rb"(?P<offer>UMS: LUN \d+, [^\n]*count)|Operation aborted|\n=> |U-Boot (?:SPL )?20\d\d\.")
_KEPT_BYTES: Final = 200
_DETACH_TIMEOUT_S: Final = 5.0
_LOOK_S: Final = 0.05


class CardPosition(StrEnum):
    """The owner of the card, in the words of `usbsdmux`."""

    HOST = "host"
    DUT = "dut"
    OFF = "off"


class Card:
    """The card image behind the mux. The board itself inserts it into its QEMU and removes it."""

    def __init__(self, image: Path, size_bytes: int, host_device: Path) -> None:
        """Make an empty card if there is none. `host_device` is the card's path on the host while the host has it.

        Raises ConfigError for an image that cannot be a card, LabError.
        """
        prepare_image(image, size_bytes)
        self.image = image
        self._size_bytes = image.stat().st_size
        self.host_device = host_device
        self._hide()
        self.position = CardPosition.DUT
        self.on_usb = False

    def release(self) -> None:
        """Take the card from its owner. Raises LabError (transient) if the host still has it open: it keeps it."""
        if self.on_usb:
            self.leave_usb()
        if self.position is CardPosition.HOST:
            self._detach()
        self.position = CardPosition.OFF

    def give(self, position: CardPosition) -> None:
        """Give a free card to `position`. Raises LabError."""
        if position is CardPosition.HOST:
            self._show()
        self.position = position

    def show_on_usb(self) -> None:
        """Show the board's card as a disk of the host, because the board offers it over USB. Raises LabError."""
        self._show()
        self.on_usb = True

    def leave_usb(self) -> None:
        """The board offers it no more, or the cable is out. A writer sees that it is gone, and writes no further."""
        self._hide()
        self.on_usb = False

    def close(self) -> None:
        self._hide()

    def _show(self) -> None:
        try:
            self.image.stat()
            self.host_device.symlink_to(self.image.absolute())
        except OSError as error:
            raise LabError(f"the card {self.image} cannot be given to the host: {error}") from error

    def _hide(self) -> None:
        self.host_device.unlink(missing_ok=True)

    def _detach(self) -> None:
        """Raises LabError (transient) if another program still has the card open."""
        self._hide()
        deadline = time.monotonic() + _DETACH_TIMEOUT_S
        while user := _user_of(self.image):
            if time.monotonic() > deadline:
                self._show()
                raise LabError(
                    f"the card is still open in process {user} ({command(user)})",
                    transient=True,
                    hint="wait for its end, or end it",
                )
            time.sleep(_LOOK_S)
        if self.image.stat().st_size != self._size_bytes:  # dd ends a file where its input ends
            os.truncate(self.image, self._size_bytes)


def _user_of(file: Path) -> int:
    """A process of this user's, or for root of anybody's, that has the file open; 0 if there is none."""
    path = str(file.resolve())
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it has ended
            for each in (process / "fd").iterdir():
                with suppress(OSError):  # closed meanwhile
                    if str(each.readlink()) == path:
                        return int(process.name)
    return 0


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
