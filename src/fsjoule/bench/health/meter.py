"""The meter, with the board off: does it answer, is it calibrated, are samples lost, does it read zero?

A board that measures itself is asked while it runs: does its counter count? Then the marks: do they arrive, and how
late are they against a square load? And the clocks: the board's, by which throughput is measured, and the meter's, by
which energy is, against the host's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.bench.health.result import Check, Complaint, Health, judged
from fsjoule.bench.square_load import SquareLoad, analyse, mark_limit_s, run_square_load
from fsjoule.errors import LabError, MeasurementInvalid
from fsjoule.meter.energy import instrument_of
from fsjoule.meter.energy.validity import ValidityLimits
from fsjoule.meter.tools.clock_fit import Drift
from fsjoule.model import BoardProfile, MeterInfo, Trace
from fsjoule.ports import Clock, Meter, Shell

METER: Final = "meter"
_RECORD_S: Final = 2.0
_MOST_GONE: Final = 0.001
# Standard uncertainties, as in the ± of every energy.
_FAR: Final = 2.0
# The rounding's standard deviation is 0.29 counts: twenty of them are six counts of the instrument. A finer converter
# shows its own noise instead.
_MOST_NOISE: Final = 20.0
_LINE: Final = "the line from the meter to its exporter, and the exporter's load: fsjoule meter watch shows losses"
_ZERO: Final = "disconnect the board and calibrate the zero: fsjoule meter calibrate; or something else draws power"

_UPDATE: Final = "update fsjoule, as the meter's firmware was; or measure with another meter"


MARKS: Final = "marks"
_PULSES: Final = 6
_WIRE: Final = "the wire from mark_device to the meter's mark input, and their common ground"
_DAMAGE: Final = (
    "a common ground, a shorter wire, 3.3 V on both sides, and 115200 baud; fsjoule meter info counts what is damaged"
)
_LATE: Final = "is the exporter or the emulator's host busy? fsjoule meter selftest --lg-env FILE draws more pulses"


CLOCK: Final = "clock"
WATCH_S: Final = 8.0
# Half of the smallest change of a figure that a gate usually decides.
_MOST_OFF: Final = 0.005
_BROKEN_OFF: Final = 0.05
# A crystal keeps 100 ppm; a resonator does not.
_MOST_PPM: Final = 500.0
_LOOKS: Final = 5
_RESOLUTION_S: Final = 0.01  # of /proc/uptime
_BOARD_CLOCK: Final = (
    "throughput is measured by this clock: its kernel's timer; an emulated board's host may be too slow for real time"
)
_METER_CLOCK: Final = "energy is measured by this clock: the meter's crystal and its firmware's clock setting"


def check_meter(meter: Meter, clock: Clock, notices: Callable[[], Sequence[str]], *, guest_time: bool = False) -> Check:
    """Record for 2 s. `notices` are what the meter says against itself. Raises MeterError.

    In guest time nothing is recorded: the meter's time stands still while the board is off.
    """
    info = meter.info()
    said = notices()
    if guest_time:
        complaints = _complaints(said) + _unknown(info)
        return judged(METER, f"{_named(info)}; it samples while the board runs", complaints)
    meter.arm()
    clock.sleep(_RECORD_S)
    return judge_meter(meter.disarm(), said)


def check_counter(meter: Meter, clock: Clock) -> Check:
    """Read a booted board's own counter for 2 s. Raises MeterError, also if it stands still."""
    meter.arm()
    clock.sleep(_RECORD_S)
    trace = meter.disarm()
    seen = f"{_named(trace.info)}; the idle board draws {float(trace.power_w.mean()):.2f} W by its own counter"
    return judged(METER, seen, _unknown(trace.info))


def judge_meter(trace: Trace, notices: Sequence[str]) -> Check:
    """Judge a trace of a board that is off, and what the meter says."""
    info, watts, gone = trace.info, trace.power_w, trace.lost + trace.missed
    if not len(watts):
        return Check(METER, Health.BROKEN, f"{info.serial_number} answers, and sends no samples", _LINE)
    mean_w, noise_w = float(watts.mean()), float(watts.std())
    expected = len(watts) + gone
    seen = f"{_named(info)}, {gone} of {expected} lost; board off {mean_w * 1e3:+.2f} mW, noise {noise_w * 1e3:.2f} mW"
    complaints = _complaints(notices)
    # A board that is off may leave its mark line floating; the check of the marks looks at it.
    faults = [each for each in trace.faults if each not in trace.mark_faults]
    complaints += [Complaint(Health.DOUBTFUL, each, _LINE) for each in faults]
    limits = ValidityLimits()
    if trace.lost > limits.lost_fraction * expected or trace.missed > limits.missed_fraction * expected:
        complaints.append(Complaint(Health.BROKEN, f"{gone / expected:.1%} of its samples are lost", _LINE))
    elif gone > _MOST_GONE * expected:
        complaints.append(Complaint(Health.DOUBTFUL, f"{gone / expected:.1%} of its samples are lost", _LINE))
    if unknown := _unknown(info):
        return judged(METER, seen, complaints + unknown)
    errors = instrument_of(info).steady(float(np.mean(trace.voltage_v)), float(np.mean(np.abs(trace.current_a))))
    most_w = _FAR * math.hypot(errors.offset_w, errors.shunt_rounding_w)
    if abs(mean_w) > most_w:  # not with NaN, of an instrument that does not know its offset
        what = f"with the board off it reads more than its offset may be (±{most_w * 1e3:.1f} mW)"
        complaints.append(Complaint(Health.DOUBTFUL, what, _ZERO))
    if noise_w > _MOST_NOISE * math.hypot(errors.shunt_rounding_w, errors.noise_w) > 0:
        complaints.append(
            Complaint(Health.DOUBTFUL, "it is noisy", "its wires beside the board's supply; ground of both; the supply")
        )
    return judged(METER, seen, complaints)


def _named(info: MeterInfo) -> str:
    return f"{info.serial_number}{' (simulated)' if info.simulated else ''}, {info.rate_hz} samples/s"


def _unknown(info: MeterInfo) -> list[Complaint]:
    """No joule can be had of a meter whose errors nobody knows: of a later firmware, for example."""
    try:
        instrument_of(info)
    except MeasurementInvalid as error:
        return [Complaint(Health.BROKEN, "; ".join(error.reasons), _UPDATE)]
    return []


def _complaints(notices: Sequence[str]) -> list[Complaint]:
    return [Complaint(Health.DOUBTFUL, each, "fsjoule meter info --lg-env FILE shows all of it") for each in notices]


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
        load = analyse(trace, profile.mark_line, pulses)
    except MeasurementInvalid as error:
        late = Complaint(Health.DOUBTFUL, "; ".join(error.reasons), _LATE)
        return judged(MARKS, f"{heard} of {sent} arrived", [*damage, late])
    return judge_marks(load, mark_limit_s(trace.info, profile.mark_line, profile.window_excess_s), damage)


def judge_marks(load: SquareLoad, limit_s: float, complaints: Sequence[Complaint] = ()) -> Check:
    """Judge latencies by the limit that the energy's uncertainty includes, in seconds, beside other complaints."""
    start, stop = load.start, load.stop
    seen = (
        f"start marks {start.median_s * 1e3:+.1f} ms (SD {start.spread_s * 1e3:.1f}), "
        f"stop marks {stop.median_s * 1e3:+.1f} ms (SD {stop.spread_s * 1e3:.1f}) against {load.pulses} pulses of "
        f"{(load.high_w - load.low_w) * 1e3:.0f} mW; allowed are {limit_s * 1e3:.0f} ms"
    )
    complaints = list(complaints)
    if (farthest_s := max(start.farthest_s, stop.farthest_s)) > limit_s:
        complaints.append(Complaint(Health.DOUBTFUL, f"a mark was {farthest_s * 1e3:.0f} ms off", _LATE))
    return judged(MARKS, seen, complaints)


@dataclass(frozen=True, slots=True)
class ClockGain:
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
    after = _look(shell, clock)
    span_s = after.host_s - before.host_s
    gain = ClockGain((after.board_s - before.board_s) / span_s - 1, (before.within_s + after.within_s) / span_s)
    return judge_clock(gain, drift, notes)


def judge_clock(board: ClockGain, meter: Drift | None, notes: Sequence[str] = ()) -> Check:
    seen = f"board {board.gain:+.2%} ± {board.uncertainty:.2%} against the host"
    complaints = [Complaint(Health.DOUBTFUL, each, "see the note") for each in notes]
    off = abs(board.gain) - board.uncertainty
    if off > _MOST_OFF:
        health = Health.BROKEN if off > _BROKEN_OFF else Health.DOUBTFUL
        complaints.append(
            Complaint(health, f"the board's clock {'gains' if board.gain > 0 else 'loses'}", _BOARD_CLOCK)
        )
    if meter is not None:
        uncertainty_ppm = 2 * meter.uncertainty_ppm
        seen += f", meter {meter.ppm:+.0f} ± {uncertainty_ppm:.0f} ppm"
        if abs(meter.ppm) - uncertainty_ppm > _MOST_PPM:
            word = "gains" if meter.ppm > 0 else "loses"
            complaints.append(Complaint(Health.DOUBTFUL, f"the meter's clock {word}", _METER_CLOCK))
    return judged(CLOCK, seen, complaints)


@dataclass(frozen=True, slots=True)
class _Look:
    """The board's time at a moment of the host's, which is known to ± `within_s`."""

    host_s: float
    board_s: float
    within_s: float


def _look(shell: Shell, clock: Clock) -> _Look:
    """Ask the board for its time a few times, and keep the quickest answer."""
    looks: list[_Look] = []
    for _ in range(_LOOKS):
        begin_s = clock.now_s()
        said = shell.run(["cat", "/proc/uptime"]).stdout
        end_s = clock.now_s()
        try:
            board_s = float(said.split()[0])
        except (ValueError, IndexError):
            raise LabError(f"the board's clock cannot be read: {said.strip()!r}", transient=True) from None
        looks.append(_Look((begin_s + end_s) / 2, board_s, (end_s - begin_s) / 2 + _RESOLUTION_S / 2))
    return min(looks, key=lambda look: look.within_s)
