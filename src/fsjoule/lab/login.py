"""Waiting for a board's login: the prompt, a panic, a boot loader that gave up, or silence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pexpect

from fsjoule.errors import BoardError, Part
from fsjoule.lab import boot_failures
from fsjoule.lab.flashers import KernelKeeper
from fsjoule.lab.shell import PANIC

if TYPE_CHECKING:
    from fsjoule.lab.strategy import BoardStrategy

_LOOK_S: Final = 2.0
_AFTER_OOPS_S: Final = 20.0
# A boot ROM may have another speed than what it starts.
_GARBLED_S: Final = 30.0
# A busy computer makes every pause of an emulated board longer.
_TIMES_AS_LONG: Final = 4


def await_login(board: BoardStrategy, unless: str = "", *, look_s: float = _LOOK_S) -> bool:
    """Whether the login prompt came, and not `unless`. Raises BoardError at a panic, a hang or a time limit."""
    begin = quiet_since = time.monotonic()
    received = 0
    longest_s = 0.0
    own = (boot_failures.NOTHING_FOUND if board.boot_loader else "", board.boot_failure)
    failure = "|".join(filter(None, (PANIC, boot_failures.FAILURE, *own)))
    patterns = [board.shell.login_prompt, failure, pexpect.TIMEOUT, *filter(None, [unless])]
    while (waited_s := time.monotonic() - begin) < board.boot_timeout:
        index, _, match, _ = board.console.expect(patterns, timeout=min(look_s, board.boot_timeout - waited_s))
        quiet_s = time.monotonic() - quiet_since
        if board.recorder.received_bytes != received:
            received, quiet_since = board.recorder.received_bytes, time.monotonic()
            longest_s = max(longest_s, quiet_s)
        if index in {0, 3}:
            board.longest_silence_s = max(longest_s, board.longest_silence_s or 0.0)
            return index == 0
        if index == 1:
            message = match.group(0).decode(errors="replace")
            why, for_good = boot_failures.root_failure(board.recorder.text())
            if why:
                error = did_not_boot(board, why)
                error.transient = not for_good
                raise error
            raise did_not_boot(board, boot_failures.reason(message, board.recorder.text()))
        if received == 0 and waited_s > board.silence_timeout:
            guess = ": its boot ROM may have found no boot loader on the card" if board.boot_loader else ""
            what = f"no console output within {board.silence_timeout} s of power-on{guess}"
            raise _silent(board, did_not_boot(board, what))
        if causes := board.look():
            raise did_not_boot(board, f"given up {waited_s:.0f} s after power-on", causes)
        _check_said(board, time.monotonic() - quiet_since, waited_s)
        if _hangs(board, time.monotonic() - quiet_since):
            known = f"no boot before was for more than {board.longest_silence_s:.0f} s"
            raise did_not_boot(board, f"it hangs: silent for {time.monotonic() - quiet_since:.0f} s, and {known}")
    oops = boot_failures.oops(board.recorder.text())
    guess = f": {oops}" if oops else boot_failures.last_words(board.recorder.tail())
    error = did_not_boot(board, f"no login within {board.boot_timeout} s of power-on{guess}")
    raise error if received else _silent(board, error)


def _check_said(board: BoardStrategy, quiet_s: float, waited_s: float) -> None:
    """Raise BoardError for a boot of which the console says that it will not come to a login."""
    said = board.recorder.text()
    # The kept kernel starts by itself where a new one has failed.
    if loop := boot_failures.loop(said, restarts=int(isinstance(board.flasher, KernelKeeper))):
        raise did_not_boot(board, loop)
    if quiet_s > _AFTER_OOPS_S and (oops := boot_failures.oops(said)):
        raise did_not_boot(board, oops)
    if waited_s > _GARBLED_S and boot_failures.is_garbled(said):
        error = did_not_boot(board, "its console sends no text")
        error.transient, error.part = False, Part.CONSOLE
        error.hint = "the exporter's serial port and the board must have the same speed (`speed`), and a common ground"
        raise error


def _silent(board: BoardStrategy, error: BoardError) -> BoardError:
    """The error of a board without a word: its boot loader should have spoken before any kernel."""
    if board.boot_loader and error.part is None:
        error.part = Part.BOARD
    return error


def did_not_boot(board: BoardStrategy, reason: str, causes: Sequence[str] = ()) -> BoardError:
    """The error for a board without a login. If dead programs of the lab are why, its console is not shown."""
    what = f"did not boot: {reason}"
    error = BoardError(f"{board.board} {what}") if causes else board.error(what)
    error.blame_lab(causes)
    return error


def _hangs(board: BoardStrategy, quiet_s: float) -> bool:
    """Whether it is silent for much longer than it ever was in a boot that came to its login."""
    if board.hang_after_s is None or board.longest_silence_s is None:
        return False
    return quiet_s > max(board.hang_after_s, _TIMES_AS_LONG * board.longest_silence_s)
