"""The watch of a board that boots: for the login prompt, a panic, a boot loader that gave up, a loop, or silence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

import pexpect

from fsjoule.errors import BoardError, Part
from fsjoule.lab import boot_failures
from fsjoule.lab.board_network import FailingBoard
from fsjoule.lab.console import ConsoleRecorder
from fsjoule.lab.flashers import KernelKeeper
from fsjoule.lab.shell import PANIC

_LOOK_S: Final = 2.0
_AFTER_OOPS_S: Final = 20.0
# A boot ROM may have another speed than what it starts.
_GARBLED_S: Final = 30.0
# A busy computer makes every pause of an emulated board longer.
_TIMES_AS_LONG: Final = 4


class BootingBoard(FailingBoard, Protocol):
    """What the watch needs of a board; BoardStrategy tells what each is. `console` and `shell` are its drivers."""

    board: str
    console: Any
    shell: Any
    recorder: ConsoleRecorder
    flasher: Any
    boot_loader: Any
    boot_failure: Any
    boot_timeout: Any
    silence_timeout: Any
    restarts: Any

    def look(self) -> tuple[str, ...]: ...


class BootWatch:
    """Watches each boot of one board, and remembers how long its console was silent in those that came to a login.

    `longest_silence_s` is the longest pause in such a boot, None before the first. A boot that pauses four times as
    long, and for more than `hang_after_s`, hangs; with None no boot does.
    """

    def __init__(self, board: BootingBoard) -> None:
        self._board = board
        self.longest_silence_s: float | None = None
        self.hang_after_s: float | None = None

    def await_login(self, unless: str = "", *, look_s: float = _LOOK_S) -> bool:
        """Whether the login prompt came, and not `unless`. Raises BoardError at a panic, a hang or a time limit."""
        board = self._board
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
                self.longest_silence_s = max(longest_s, self.longest_silence_s or 0.0)
                return index == 0
            if index == 1:
                raise self._given_up(match.group(0).decode(errors="replace"))
            if received == 0 and waited_s > board.silence_timeout:
                guess = ": its boot ROM may have found no boot loader on the card" if board.boot_loader else ""
                what = f"no console output within {board.silence_timeout} s of power-on{guess}"
                raise self._silent(self.did_not_boot(what))
            if causes := board.look():
                raise self.did_not_boot(f"given up {waited_s:.0f} s after power-on", causes)
            self._check_said(time.monotonic() - quiet_since, waited_s)
            self._check_hang(time.monotonic() - quiet_since)
        oops = boot_failures.oops(board.recorder.text())
        guess = f": {oops}" if oops else boot_failures.last_words(board.recorder.tail())
        error = self.did_not_boot(f"no login within {board.boot_timeout} s of power-on{guess}")
        raise error if received else self._silent(error)

    def did_not_boot(self, reason: str, causes: Sequence[str] = ()) -> BoardError:
        """The error for a board without a login. If dead programs of the lab are why, its console is not shown."""
        what = f"did not boot: {reason}"
        error = BoardError(f"{self._board.board} {what}") if causes else self._board.error(what)
        error.blame_lab(causes)
        return error

    def _given_up(self, message: str) -> BoardError:
        """The error for a kernel that panicked, or a boot loader that gave up, with this `message`."""
        said = self._board.recorder.text()
        why, for_good = boot_failures.root_failure(said)
        if not why:
            return self.did_not_boot(boot_failures.reason(message, said))
        error = self.did_not_boot(why)
        error.transient = not for_good
        return error

    def _check_said(self, quiet_s: float, waited_s: float) -> None:
        """Raise BoardError for a boot of which the console says that it will not come to a login."""
        said = self._board.recorder.text()
        # The kept kernel starts by itself where a new one has failed.
        restarts = self._board.restarts + isinstance(self._board.flasher, KernelKeeper)
        if loop := boot_failures.loop(said, restarts=restarts):
            raise self.did_not_boot(loop)
        if quiet_s > _AFTER_OOPS_S and (oops := boot_failures.oops(said)):
            raise self.did_not_boot(oops)
        if waited_s > _GARBLED_S and boot_failures.is_garbled(said):
            error = self.did_not_boot("its console sends no text")
            error.transient, error.part = False, Part.CONSOLE
            error.hint = (
                "the exporter's serial port and the board must have the same speed (`speed`), and a common ground"
            )
            raise error

    def _check_hang(self, quiet_s: float) -> None:
        """Raise BoardError if it is silent for much longer than it ever was in a boot that came to its login."""
        if self.hang_after_s is None or self.longest_silence_s is None:
            return
        if quiet_s > max(self.hang_after_s, _TIMES_AS_LONG * self.longest_silence_s):
            known = f"no boot before was for more than {self.longest_silence_s:.0f} s"
            raise self.did_not_boot(f"it hangs: silent for {quiet_s:.0f} s, and {known}")

    def _silent(self, error: BoardError) -> BoardError:
        """The error of a board without a word: its boot loader should have spoken before any kernel."""
        if self._board.boot_loader and error.part is None:
            error.part = Part.BOARD
        return error
