"""Marks: do they arrive at the meter, and how late are they? A few pulses of the square load tell."""

from __future__ import annotations

from typing import Final

from fsjoule.bench.health.result import Check, Complaint, Health, judged
from fsjoule.bench.square_load import SquareLoad, analyse, mark_limit_s, run_square_load
from fsjoule.errors import MeasurementInvalid
from fsjoule.model import BoardProfile
from fsjoule.ports import Clock, Meter, Shell

MARKS: Final = "marks"
_PULSES: Final = 6
_WIRE: Final = "the wire from mark_device to the meter's mark input, and their common ground"
_LATE: Final = "is the exporter or the emulator's host busy? fsjoule meter selftest --lg-env FILE draws more pulses"


def check_marks(shell: Shell, meter: Meter, clock: Clock, profile: BoardProfile, *, pulses: int = _PULSES) -> Check:
    """Draw a square load on a booted board. Raises LabError."""
    trace = run_square_load(shell, meter, clock, profile.mark_line, pulses=pulses)
    sent, heard = 2 * pulses, len(trace.marks)
    if heard != sent:
        what = f"{heard} of {sent} marks arrived at the meter"
        return judged(MARKS, "", [Complaint(Health.BROKEN, what, _WIRE)])
    if profile.guest_time:
        return Check(
            MARKS, Health.OK, f"{heard} of {sent} arrived; in guest time there is no latency that a load could show"
        )
    try:
        found = analyse(trace, profile.mark_line, pulses)
    except MeasurementInvalid as error:
        return judged(
            MARKS, f"{heard} of {sent} arrived", [Complaint(Health.DOUBTFUL, "; ".join(error.reasons), _LATE)]
        )
    return judge_marks(found, mark_limit_s(trace.info, profile.mark_line, profile.window_excess_s))


def judge_marks(found: SquareLoad, limit_s: float) -> Check:
    """Judge latencies by the limit that the energy's uncertainty includes, in seconds."""
    start, stop = found.start, found.stop
    seen = (
        f"start marks {start.median_s * 1e3:+.1f} ms (SD {start.spread_s * 1e3:.1f}), "
        f"stop marks {stop.median_s * 1e3:+.1f} ms (SD {stop.spread_s * 1e3:.1f}) against {found.pulses} pulses of "
        f"{(found.high_w - found.low_w) * 1e3:.0f} mW; allowed are {limit_s * 1e3:.0f} ms"
    )
    complaints: list[Complaint] = []
    if (farthest_s := max(start.farthest_s, stop.farthest_s)) > limit_s:
        complaints.append(Complaint(Health.DOUBTFUL, f"a mark was {farthest_s * 1e3:.0f} ms off", _LATE))
    return judged(MARKS, seen, complaints)
