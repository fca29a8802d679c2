"""The card by its flasher, and the boot: console, boot loader, kernel and login."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fsjoule.bench.health.result import Check, Complaint, Health, judged
from fsjoule.ports import Board, BoardParts, Clock, Shell

FLASHER: Final = "flasher"
BOOT: Final = "boot"
_SLOW: Final = 0.7


def check_flasher(parts: BoardParts, write: Callable[[], None] | None, clock: Clock) -> Check:
    """Reach the card without writing to it; then `write` it, if the user asked for that. Raises LabError."""
    found = parts.reach_card()
    if write is None:
        if not found:
            return Check(FLASHER, Health.NOT_HERE, "this flasher cannot reach the card without writing to it")
        return judged(FLASHER, f"{found}; nothing was written")
    begin_s = clock.now_s()
    write()
    took = f"the card was written in {clock.now_s() - begin_s:.0f} s"
    return judged(FLASHER, f"{found}; {took}" if found else took)


def check_boot(board: Board, parts: BoardParts, clock: Clock) -> tuple[Check, Shell]:
    """Boot what is on the card. Raises BoardError."""
    begin_s = clock.now_s()
    shell = board.boot()
    return judge_boot(clock.now_s() - begin_s, parts.boot_limit_s), shell


def judge_boot(took_s: float, limit_s: float) -> Check:
    complaints: list[Complaint] = []
    if took_s > _SLOW * limit_s:
        advice = (
            "raise boot_timeout of BoardStrategy, or find what delays the boot: a slow boot now and then exceeds it"
        )
        complaints.append(Complaint(Health.DOUBTFUL, f"it needs more than {_SLOW:.0%} of its limit", advice))
    return judged(BOOT, f"login after {took_s:.1f} s; the limit is {limit_s:.0f} s", complaints)
