"""The emulated Orange Pi PC, flashed by Debian's program `fastboot` over UDP, through a U-Boot built for it.

No U-Boot of Debian's has fastboot over a network: it is built from Debian's source package with a few options more.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lab_board import lab_board

from flashing.u_boot import fastboot_u_boot
from fsjoule import images
from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.lab import BoardStrategy
from fsjoule.lab.flashers import NamedCard
from fsjoule.model import MIB, ImageFacts
from fsjoule.virtual.lab.files import LabPaths

_ENVIRONMENT: Final = Path(__file__).parents[2] / "env" / "virtual-orangepi-network.yaml"
_NAME: Final = "orangepi-fastboot"
_TFTP: Final = """\
      TFTPProviderDriver: {}
      TftpFlasher:
        device: mmc 0
"""
_FASTBOOT: Final = """\
      AndroidFastbootDriver: {}
      FastbootFlasher:
        command: fastboot udp
        device: mmc 0
        device_timeout: 120
        write_timeout: 3000
"""
_LOADER_AT: Final = 8192
_START_BYTES: Final = 4 * MIB
_DATA_BYTES: Final = 40 * MIB  # more than the 16 MiB of U-Boot's memory for it
_CARD_BYTES: Final = 64 * MIB


class _Board:
    def __init__(self, strategy: Any) -> None:
        self.strategy: BoardStrategy = strategy
        self.flasher: Any = strategy.flasher

    def flash(self, image: Path) -> None:
        self.strategy.forget_card()
        self.strategy.card = NamedCard(image, ImageFacts("", image.name, "", str(image), {}, {}))
        self.strategy.transition("flashed")


def try_fastboot() -> list[str]:
    """Flash a card whole, and with faults, through a U-Boot that is built first. Returns what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        return _flash_with(fastboot_u_boot(Path(folder) / "u-boot"), Path(folder))


def _flash_with(loader: Path, folder: Path) -> list[str]:
    start = _start_of_card(loader.read_bytes())
    paths = LabPaths.of(_NAME)
    paths.root.mkdir(parents=True)
    paths.card.write_bytes(start)
    os.truncate(paths.card, _CARD_BYTES)
    image = folder / "card.img"
    image.write_bytes(start + os.urandom(_DATA_BYTES))
    os.truncate(image, _CARD_BYTES)
    _map(image, _START_BYTES + _DATA_BYTES)
    text = _ENVIRONMENT.read_text()
    assert text.count(_TFTP) == 1
    environment = folder / "env.yaml"
    environment.write_text(text.replace(_TFTP, _FASTBOOT).replace("orangepi-network", _NAME))
    with lab_board(_NAME, environment, "orangepi-fastboot") as strategy:
        board = _Board(strategy)
        wrong = [_whole(board, image, paths.card), _whole(board, image, paths.card)]
        for what, change, says in _FAULTS:
            _damage(paths.card)
            wrong.append(_failing(board, image, what, change, says))
        wrong.append(_whole(board, image, paths.card))
    return [each for each in wrong if each]


def _whole(board: _Board, image: Path, card: Path) -> str:
    begin = time.monotonic()
    try:
        board.flash(image)
    except LabError as error:
        return f"fastboot: {error}"
    with card.open("rb") as written:
        same = written.read(image.stat().st_size) == image.read_bytes()
    sys.stdout.write(f"fastboot: {time.monotonic() - begin:.0f} s, {'whole' if same else 'another content'}\n")
    sys.stdout.flush()
    return "" if same else "fastboot: another content"


def _damage(card: Path) -> None:
    """Give the card, whose board is off, another content: otherwise nothing would be sent."""
    with card.open("r+b") as file:
        file.seek(_START_BYTES)
        file.write(os.urandom(_DATA_BYTES))


def _failing(board: _Board, image: Path, what: str, change: Callable[[Any], Callable[[], None]], says: str) -> str:
    undo = change(board.flasher)
    begin = time.monotonic()
    try:
        board.flash(image)
    except LabError as error:
        told = str(error)
    else:
        told = "no error"
    finally:
        undo()
    sys.stdout.write(f"{what}: {time.monotonic() - begin:.0f} s: {told.splitlines()[0]}\n")
    sys.stdout.flush()
    return "" if re.search(says, told) else f"{what}: another message: {told}"


def _with(name: str, value: object) -> Callable[[Any], Callable[[], None]]:
    def change(flasher: Any) -> Callable[[], None]:
        before = getattr(flasher, name)
        setattr(flasher, name, value)
        return lambda: setattr(flasher, name, before)

    return change


_FAULTS: Final = (
    (
        "a partition that is not there",
        _with("partition", "system"),
        r"refused the card's content: invalid partition or device",
    ),
    ("no such line", _with("command", "fastboot tcp"), r"refused 'fastboot tcp': .*not enabled"),
    ("no time to write", _with("write_timeout", 1), r"sending the card's content took longer than 1 s"),
)


def _start_of_card(loader: bytes) -> bytes:
    """A card's partition table, and this boot loader."""
    card = images.build_card("6.1", "ext4", recipe="orangepi-qemu")
    with card.path.open("rb") as file:
        start = bytearray(file.read(_START_BYTES))
    start[_LOADER_AT : _LOADER_AT + len(loader)] = loader
    return bytes(start)


def _map(image: Path, size_bytes: int) -> None:
    process.run(["fallocate", "--dig-holes", image], timeout_s=60)
    last = size_bytes // 4096 - 1
    text = f"<bmap><BlockSize> 4096 </BlockSize><BlockMap><Range> 0-{last} </Range></BlockMap></bmap>"
    image.with_name(f"{image.name}.bmap").write_text(text)
