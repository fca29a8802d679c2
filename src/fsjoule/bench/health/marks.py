"""Marks: do they arrive at the meter, and how late are they? A few pulses of the square load tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fsjoule.bench.health.result import Check, Complaint, Health, judged
from fsjoule.bench.square_load import SquareLoad, analyse, mark_limit_s, run_square_load
from fsjoule.errors import MeasurementInvalid
from fsjoule.model import BoardProfile
from fsjoule.ports import Clock, Meter, Shell

MARKS: Final = "marks"
_PULSES: Final = 6
_WIRE: Final = "the wire from mark_device to the meter's mark input, and their common ground"
_DAMAGE: Final = (
    "a common ground, a shorter wire, 3.3 V on both sides, and 115200 baud; fsjoule meter info counts what is damaged"
)
_LATE: Final = "is the exporter or the emulator's host busy? fsjoule meter selftest --lg-env FILE draws more pulses"


def check_marks(shell: Shell, meter: Meter, clock: Clock, profile: BoardProfile, *, pulses: int = _PULSES) -> Check:
    """Draw a square load on a booted board. Raises LabError."""
    trace = run_square_load(shell, meter, clock, profile.mark_line, pulses=pulses)
    sent, heard = 2 * pulses, len(trace.marks)
    damage = [Complaint(Health.DOUBTFUL, each, _DAMAGE) for each in trace.mark_faults]
    if heard != sent:
        what = f"{heard} of {sent} marks arrived at the meter"
        return judged(MARKS, "", [Complaint(Health.BROKEN, what, _DAMAGE if damage else _WIRE), *damage])
    if profile.mark_line.is_counter:
        return Check(MARKS, Health.OK, f"{heard} of {sent} came; each is a reading of the board's own counter")
    if profile.guest_time:
        return Check(
            MARKS, Health.OK, f"{heard} of {sent} arrived; in guest time there is no latency that a load could show"
        )
    try:
        found = analyse(trace, profile.mark_line, pulses)
    except MeasurementInvalid as error:
        late = Complaint(Health.DOUBTFUL, "; ".join(error.reasons), _LATE)
        return judged(MARKS, f"{heard} of {sent} arrived", [*damage, late])
    return judge_marks(found, mark_limit_s(trace.info, profile.mark_line, profile.window_excess_s), damage)


def judge_marks(found: SquareLoad, limit_s: float, complaints: Sequence[Complaint] = ()) -> Check:
    """Judge latencies by the limit that the energy's uncertainty includes, in seconds, beside other complaints."""
    start, stop = found.start, found.stop
    seen = (
        f"start marks {start.median_s * 1e3:+.1f} ms (SD {start.spread_s * 1e3:.1f}), "
        f"stop marks {stop.median_s * 1e3:+.1f} ms (SD {stop.spread_s * 1e3:.1f}) against {found.pulses} pulses of "
        f"{(found.high_w - found.low_w) * 1e3:.0f} mW; allowed are {limit_s * 1e3:.0f} ms"
    )
    complaints = list(complaints)
    if (farthest_s := max(start.farthest_s, stop.farthest_s)) > limit_s:
        complaints.append(Complaint(Health.DOUBTFUL, f"a mark was {farthest_s * 1e3:.0f} ms off", _LATE))
    return judged(MARKS, seen, complaints)
