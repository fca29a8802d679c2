"""Whether a meter can have measured the running board at all: which way the current flows, and whether any does.

A board that works draws some power all the time, through each of its ticks, and none while it is off.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.meter.energy import instrument_of
from fsjoule.model import Trace, Window

# Less than the smallest board at rest, more than the noise of an instrument without a load.
_LEAST_W: Final = 1e-3
# Standard uncertainties, as in the +- of every energy.
_FAR: Final = 2.0
# A supply without current for so long is no pause of its converter: the board's capacitors do not last.
_LONGEST_US: Final = 5_000
# Of the power of the board at rest, what a powered signal line or a part before the outlet may draw while it is off.
_MOST_LEFT: Final = 0.25
_SUPPLY: Final = "is the meter in this board's supply, with all of its wires?"


def swap_complaints(trace: Trace, window: Window, name: str) -> list[str]:
    """A complaint if the mean power of a window, called `name`, is negative by more than the meter's offset.

    Raises MeasurementInvalid for an unknown instrument.
    """
    watts, least_w = _watts(trace, window)
    if not len(watts) or not float(watts.mean()) < -least_w:
        return []
    what = f"{name} has a mean power of {float(watts.mean()):.3f} W: the leads of the meter are swapped"
    return [f"{what}, or a cable feeds the board from its other side"]


def flow_complaints(trace: Trace, window: Window, name: str) -> list[str]:
    """Complaints as of `swap_complaints`, or if for some time of a window no power flowed into a running board.

    The part that a processor's counter counts may rest: its traces have no voltage. Raises MeasurementInvalid for an
    unknown instrument.
    """
    if swapped := swap_complaints(trace, window, name):
        return swapped
    watts, least_w = _watts(trace, window)
    back_us = _longest(watts < -least_w) * trace.info.tick_us
    if back_us >= _LONGEST_US:
        what = f"for {back_us / 1e3:.0f} ms of {name} the current flowed back: the leads of the meter were swapped"
        return [f"{what}, or a cable fed the board from its other side"]
    without_us = _longest(watts < least_w) * trace.info.tick_us
    if without_us < min(_LONGEST_US, window.duration_s * 1e6 / 2) or not without_us:
        return []
    return [f"for {without_us / 1e3:.0f} ms of {name} less than {least_w * 1e3:.3g} mW flowed: {_SUPPLY}"]


def off_complaints(off_w: float, idle_w: float) -> list[str]:
    """Complaints unless the power without the board, in W, is far below that of the board at rest."""
    if off_w <= max(_MOST_LEFT * idle_w, _LEAST_W):
        return []
    what = f"with the board off the meter read {off_w:.3f} W, with the board at rest {idle_w:.3f} W"
    return [f"{what}: it measures another board, or another load as well"]


def _watts(trace: Trace, window: Window) -> tuple[npt.NDArray[np.float64], float]:
    """The powers of a window's ticks, and below which power there is none; NaN for a counter."""
    inside = (trace.times_us + trace.info.tick_us > window.start_us) & (trace.times_us < window.stop_us)
    if not inside.any():
        return np.zeros(0), math.nan
    volts, amperes = trace.mean_load(np.flatnonzero(inside))
    if math.isnan(volts):
        return trace.power_w[inside], math.nan
    errors = instrument_of(trace.info).steady(volts, 0.0 if math.isnan(amperes) else amperes)
    return trace.power_w[inside], max(_LEAST_W, _FAR * math.hypot(errors.offset_w, errors.shunt_rounding_w))


def _longest(flags: npt.NDArray[np.bool_]) -> int:
    """The length of the longest run of true flags."""
    ends = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return int((ends[1::2] - ends[::2]).max(initial=0))
