"""The meter, with the board off: does it answer, is it calibrated, are samples lost, does it read zero?

A board that measures itself is asked while it runs: does its counter count?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from fsjoule.bench.health.result import Check, Complaint, Health, judged
from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy import instrument_of
from fsjoule.meter.energy.validity import ValidityLimits
from fsjoule.model import MeterInfo, Trace
from fsjoule.ports import Clock, Meter

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
