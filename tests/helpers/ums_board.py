"""The emulated SABRE Lite, whose card is written by UMS, with faults of cable, reset button, outlet and prompt."""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from lab_board import lab_board

from fsjoule.errors import LabError
from fsjoule.lab import BoardStrategy
from fsjoule.lab.flashers import NamedCard
from fsjoule.model import ImageFacts
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths

ENVIRONMENT: Final = Path(__file__).parents[2] / "env" / "virtual-sabrelite.yaml"
NAME: Final = "virtual-sabrelite"
_BLOCK_BYTES: Final = 4096
_PHASE_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.02

# What a fault's message must say, whatever the moment.
RIGHT_MESSAGE: Final = {
    "unplugged": r"the exporter has lost the board's USB disk|USB disk did not appear on the exporter within",
    "reset": r"the board started again",
    "prompt missed": r"did not come to U-Boot's prompt: its countdown was missed, and U-Boot started the kernel",
    "power lost": r"the board has no power: its outlet is off",
}


class UmsBoard:
    """A board with its strategy; `flash` raises what the strategy raises."""

    def __init__(self, strategy: BoardStrategy) -> None:
        self.strategy = strategy
        self.card = LabPaths.of(NAME).card
        record = LabPaths.of(NAME).read()
        assert record is not None
        self._url = record.boards[0].status_url

    @property
    def flasher(self) -> Any:
        strategy: Any = self.strategy
        return strategy.flasher

    @property
    def status(self) -> dict[str, Any]:
        board = lab.status(NAME).board
        assert board is not None
        return board

    def flash(self, image: Path) -> None:
        self.strategy.forget_card()
        self.strategy.card = NamedCard(image, ImageFacts("", image.name, "", str(image), {}, {}))
        self.strategy.transition("flashed")

    def plug_usb(self, plugged: bool) -> None:
        self._put("/usb", str(int(plugged)))

    def reset(self) -> None:
        self._put("/reset", "")

    def cut_power(self) -> None:
        self._put("/outlet/0", "0")

    @contextmanager
    def fault(self, act: Callable[[], None], *, phase: str, after_s: float) -> Generator[None]:
        """Do `act` so many seconds after the board has power (`phase` on) or offers its card (`phase` usb)."""
        done = threading.Event()

        def wait() -> None:
            deadline = time.monotonic() + _PHASE_TIMEOUT_S
            while not done.is_set() and time.monotonic() < deadline:
                status = self.status
                if status["card"]["on_usb"] if phase == "usb" else status["power"] == "on":
                    done.wait(after_s)
                    act()
                    return
                time.sleep(_POLL_S)

        thread = threading.Thread(target=wait)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def holds(self, image: Path) -> bool:
        """Whether the card has every mapped block of an image; all of them without a block map."""
        block_map = image.with_name(f"{image.name}.bmap")
        last = (image.stat().st_size - 1) // _BLOCK_BYTES
        text = block_map.read_text() if block_map.exists() else f"<Range>0-{last}</Range>"
        with image.open("rb") as wanted, self.card.open("rb") as found:
            for first, _, end in re.findall(r"<Range[^>]*>\s*(\d+)(-(\d+))?\s*</Range>", text):
                for file in (wanted, found):
                    file.seek(int(first) * _BLOCK_BYTES)
                size = (int(end or first) - int(first) + 1) * _BLOCK_BYTES
                if wanted.read(size) != found.read(size):
                    return False
        return True

    def _put(self, path: str, body: str) -> None:
        request = urllib.request.Request(urljoin(self._url, path), body.encode(), method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass


@contextmanager
def ums_board() -> Generator[UmsBoard]:
    """A lab, its place acquired, and its board."""
    with lab_board(NAME, ENVIRONMENT, "sabrelite") as strategy:
        yield UmsBoard(strategy)


def failed(board: UmsBoard, image: Path) -> LabError | None:
    """The error of a flash, or None."""
    try:
        board.flash(image)
    except LabError as error:
        return error
    return None
