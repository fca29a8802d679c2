"""The cable from the board's USB device port to the exporter's computer.

QEMU has no USB device port. U-Boot's command `ums` runs all the same and waits for a host: while it says that it offers
the card, the card is a disk of the host. U-Boot, its prompt and its messages are the real ones.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from fsjoule.errors import InfrastructureError
from fsjoule.virtual.disks.card import Card

_log: Final = logging.getLogger("fsjoule.virtual.board")
# Ctrl-C, a prompt and a board that starts again end the offer.
_EVENT: Final = re.compile(rb"(?P<offer>UMS: LUN \d+, [^\n]*count)|Operation aborted|\n=> |U-Boot (?:SPL )?20\d\d\.")
_KEPT_BYTES: Final = 200


class UsbCable:
    """Shows the card to the host while U-Boot offers it.

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
