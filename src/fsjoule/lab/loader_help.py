"""Asks the U-Boot that runs on a board for its commands, over the console."""

from __future__ import annotations

import re
import time
from typing import Any, Final

import pexpect

from fsjoule.lab.strategy import BoardStrategy
from fsjoule.lab.translate import lab_errors
from fsjoule.lab.u_boot import type_line

_KEY: Final = " "  # any key ends U-Boot's countdown, and a space before a command does no harm
_KEY_EVERY_S: Final = 0.3
_LOOK_EVERY_S: Final = 2.0
_HELP_TIMEOUT_S: Final = 60.0
_QUIET_S: Final = 1.0


def loader_help(target: Any, prompt: str) -> str:  # noqa: ANN401 - a labgrid target, which has no types
    """U-Boot's answer to `help`. The board starts from what is on its card, and is off afterwards.

    Raises BoardError if the prompt does not come within the board's `boot_timeout`, LabError.
    """
    board: BoardStrategy = target.get_driver(BoardStrategy, activate=False)
    with lab_errors("asking the board's boot loader"):
        target.activate(board)
    board.transition("off")
    try:
        board.start()
        with lab_errors("waiting for the boot loader's prompt"):
            ending = rf"[\r\n]{re.escape(prompt)}\s*$"
            _stop(board, ending)
            return _answer(board, ending)
    finally:
        board.lose()
        board.transition("off")


def _stop(board: BoardStrategy, ending: str) -> None:
    look_s = time.monotonic()
    deadline = look_s + board.boot_timeout
    while (now_s := time.monotonic()) < deadline:
        board.console.write(_KEY.encode())
        index, _, _, _ = board.console.expect([ending, pexpect.TIMEOUT], timeout=_KEY_EVERY_S)
        if index == 0:
            return
        if now_s < look_s:
            continue
        look_s = now_s + _LOOK_EVERY_S
        if causes := board.look():
            failure = board.error("did not come to its boot loader's prompt")
            failure.blame(causes)
            raise failure
    failure = board.error(f"did not come to its boot loader's prompt within {board.boot_timeout} s")
    failure.hint = "the recipe's board.prompt must be what the boot loader shows; its countdown must not be 0"
    raise failure


def _answer(board: BoardStrategy, ending: str) -> str:
    deadline = time.monotonic() + board.boot_timeout
    while board.console.expect([".+", pexpect.TIMEOUT], timeout=_QUIET_S)[0] == 0:  # the keys that were too many
        if time.monotonic() > deadline:
            raise board.error(f"still talks at its boot loader's prompt after {board.boot_timeout} s")
    type_line(board.console, ending, "help", board.error)
    index, before, _, _ = board.console.expect([ending, pexpect.TIMEOUT], timeout=_HELP_TIMEOUT_S)
    if index == 1:
        raise board.error(f"did not answer `help` within {_HELP_TIMEOUT_S:.0f} s")
    return before.decode(errors="replace")
