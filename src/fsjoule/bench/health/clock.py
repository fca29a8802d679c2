"""Clocks: the board's, by which throughput is measured, and the meter's, by which energy is, against the host's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.health.result import Check, Complaint, Health, judged
from fsjoule.errors import LabError
from fsjoule.meter.tools.clock_fit import Drift
from fsjoule.ports import Clock, Shell

CLOCK: Final = "clock"
WATCH_S: Final = 8.0
# Half of the smallest change of a figure that a gate usually decides.
_MOST_OFF: Final = 0.005
_BROKEN_OFF: Final = 0.05
# A crystal keeps 100 ppm; a resonator does not.
_MOST_PPM: Final = 500.0
_LOOKS: Final = 5
_RESOLUTION_S: Final = 0.01  # of /proc/uptime
_BOARD: Final = (
    "throughput is measured by this clock: its kernel's timer; an emulated board's host may be too slow for real time"
)
_METER: Final = "energy is measured by this clock: the meter's crystal and its firmware's clock setting"


@dataclass(frozen=True, slots=True)
class Pace:
    """A clock gains `gain` (a fraction) on the host's, which is known to ± `uncertainty`."""

    gain: float
    uncertainty: float


def check_clock(
    shell: Shell, clock: Clock, watch: Callable[[float], Drift | None] | None, notes: Sequence[str] = ()
) -> Check:
    """Compare for 8 s. `watch` compares the meter's clock for so many seconds; None without a meter. Raises LabError.

    `notes` say what else is known of the meter's and the board's clocks together.
    """
    before = _look(shell, clock)
    drift = None
    if watch is None:
        clock.sleep(WATCH_S)
    else:
        drift = watch(WATCH_S)
    return judge_clock(_pace(before, _look(shell, clock)), drift, notes)


def judge_clock(board: Pace, meter: Drift | None, notes: Sequence[str] = ()) -> Check:
    seen = f"board {board.gain:+.2%} ± {board.uncertainty:.2%} against the host"
    complaints = [Complaint(Health.DOUBTFUL, each, "see the note") for each in notes]
    off = abs(board.gain) - board.uncertainty
    if off > _MOST_OFF:
        health = Health.BROKEN if off > _BROKEN_OFF else Health.DOUBTFUL
        complaints.append(Complaint(health, f"the board's clock {'gains' if board.gain > 0 else 'loses'}", _BOARD))
    if meter is not None:
        uncertainty_ppm = 2 * meter.uncertainty_ppm
        seen += f", meter {meter.ppm:+.0f} ± {uncertainty_ppm:.0f} ppm"
        if abs(meter.ppm) - uncertainty_ppm > _MOST_PPM:
            word = "gains" if meter.ppm > 0 else "loses"
            complaints.append(Complaint(Health.DOUBTFUL, f"the meter's clock {word}", _METER))
    return judged(CLOCK, seen, complaints)


@dataclass(frozen=True, slots=True)
class _Look:
    """The board's time at a moment of the host's, which is known to ± `within_s`."""

    host_s: float
    board_s: float
    within_s: float


def _look(shell: Shell, clock: Clock) -> _Look:
    """Ask the board for its time a few times, and keep the quickest answer."""
    found: list[_Look] = []
    for _ in range(_LOOKS):
        begin_s = clock.now_s()
        said = shell.run(["cat", "/proc/uptime"]).stdout
        end_s = clock.now_s()
        try:
            board_s = float(said.split()[0])
        except (ValueError, IndexError):
            raise LabError(f"the board's clock cannot be read: {said.strip()!r}", transient=True) from None
        found.append(_Look((begin_s + end_s) / 2, board_s, (end_s - begin_s) / 2 + _RESOLUTION_S / 2))
    return min(found, key=lambda look: look.within_s)


def _pace(before: _Look, after: _Look) -> Pace:
    span_s = after.host_s - before.host_s
    return Pace((after.board_s - before.board_s) / span_s - 1, (before.within_s + after.within_s) / span_s)
