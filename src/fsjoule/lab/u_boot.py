"""U-Boot's prompt, for flashers that work through it."""

from __future__ import annotations

import re
import time
from typing import Any, Final

import pexpect
from labgrid import Target

from fsjoule.errors import BoardError, LabError
from fsjoule.lab import boot_failures
from fsjoule.lab.flashers import FlashedBoard
from fsjoule.lab.shell import PANIC
from fsjoule.lab.translate import lab_errors, time_limit

_GRACE_S: Final = 15.0
_STARTED_AGAIN: Final = re.compile(r"^U-Boot (?:SPL )?20\d\d\.", re.MULTILINE)
_KERNEL: Final = re.compile(rf"^Starting kernel|Linux version \d|{PANIC}", re.MULTILINE)
_LOADER_GAVE_UP: Final = re.compile(boot_failures.FAILURE)


def stop_u_boot(labgrid: Target, uboot: Any, board: FlashedBoard) -> None:  # noqa: ANN401 - a UBootDriver
    """Interrupt the countdown of a board that has just started, with labgrid's own driver. Raises BoardError."""
    limit_s = uboot.login_timeout + _GRACE_S
    deadline = time.monotonic() + limit_s
    doing = "stopping U-Boot's countdown"
    while True:
        try:
            with time_limit(limit_s, doing, lambda: _missed(board) or board.look()), lab_errors(doing):
                labgrid.activate(uboot)
        except LabError as error:
            # On a busy computer U-Boot answers later than the two seconds that labgrid gives it.
            late = isinstance(error.__cause__, pexpect.TIMEOUT)
            if late and time.monotonic() < deadline and not _missed(board):
                continue
            raise _no_prompt(uboot, board) from error
        else:
            return


def restarted(board: FlashedBoard) -> tuple[str, ...]:
    """Whether the board has started again since its console's record was cleared, in words."""
    return ("the board started again",) if _STARTED_AGAIN.search(board.recorder.text()) else ()


def without_power(board: FlashedBoard) -> tuple[str, ...]:
    """Whether the outlet is off, in words."""
    try:
        return () if board.has_power() else ("the board has no power: its outlet is off",)
    except LabError:
        return ()


def _no_prompt(uboot: Any, board: FlashedBoard) -> BoardError:  # noqa: ANN401 - a UBootDriver
    said = board.recorder.text()
    reason = f"no prompt within {uboot.login_timeout} s"
    if not board.recorder.received_bytes:
        reason = "no output on the console"
    elif found := _LOADER_GAVE_UP.search(said):
        reason = boot_failures.reason(found[0], said)
    elif missed := _missed(board):
        [reason] = missed
    failure = board.error(f"did not come to U-Boot's prompt: {reason}")
    failure.blame(board.look())
    failure.hint = "UBootDriver's autoboot and prompt must match what U-Boot says"
    return failure


def _missed(board: FlashedBoard) -> tuple[str, ...]:
    if _KERNEL.search(board.recorder.text()):
        return ("its countdown was missed, and U-Boot started the kernel",)
    return ()
