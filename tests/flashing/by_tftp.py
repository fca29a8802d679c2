"""A whole card of 1 GiB that U-Boot writes by TFTP: the power fails in the midst, the rest follows, and it boots."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Final

from tftp_board import TftpBoard, loader_of, tftp_board

from fsjoule import images
from fsjoule.errors import LabError
from fsjoule.lab.sparse_image import pieces
from fsjoule.model import MIB

_KERNELS: Final = ("6.1", "6.12")
_SIZE_MIB: Final = 1024
# For all pieces before the power fails, and for a start, on a busy computer.
_CUT_TIMEOUT_S: Final = 1800.0
_BOOT_TIMEOUT_S: Final = 600


def flash_cards(chance: random.Random) -> list[str]:
    """Flash a card with a power cut, and again, and then another kernel's; boot both. Returns what went wrong."""
    card, other = (images.build_card(each, "ext4", recipe="orangepi-qemu").path for each in _KERNELS)
    wrong: list[str] = []
    with tftp_board(loader_of(_KERNELS[0]), _SIZE_MIB) as board:
        board.strategy.boot_timeout = _BOOT_TIMEOUT_S
        count = len(pieces(card, board.flasher.piece_mib * MIB))
        at = chance.randrange(1, count - 1)

        def interrupted() -> str:
            with board.power_cut_after(at, timeout_s=_CUT_TIMEOUT_S):
                try:
                    board.flash(card)
                except LabError as error:
                    return "" if "its outlet is off" in str(error) else f"another message: {error}"
            return "no error"

        def flashed() -> str:
            board.flash(card)
            return "" if board.holds(card) else "another content"

        def other_flashed() -> str:
            board.flash(other)
            return ""

        wrong += _timed(board, f"the power fails after {at} of {count} pieces", interrupted)
        wrong += _timed(board, "the rest of it", flashed)
        wrong += _timed(board, f"login of {_KERNELS[0]}", lambda: _login(board, _KERNELS[0]))
        wrong += _timed(board, "the card of another kernel", other_flashed)
        wrong += _timed(board, f"login of {_KERNELS[1]}", lambda: _login(board, _KERNELS[1]))
    return wrong


def _login(board: TftpBoard, kernel: str) -> str:
    release = board.boot()
    board.off()
    return "" if release.startswith(f"{kernel}.") else f"{release} runs"


def _timed(board: TftpBoard, name: str, act: Callable[[], str]) -> list[str]:
    """Do it, and say how long it took and how many pieces were fetched. Returns what went wrong."""
    begin, before = time.monotonic(), board.fetched()
    try:
        problem = act()
    except LabError as error:
        problem = str(error)
    took_s, fetched = time.monotonic() - begin, board.fetched() - before
    sys.stdout.write(f"TFTP, {name}: {took_s:.0f} s, {fetched} pieces fetched{': ' if problem else ''}{problem}\n")
    sys.stdout.flush()
    return [f"TFTP, {name}: {problem}"] if problem else []
