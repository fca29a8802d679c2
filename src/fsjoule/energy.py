"""Trace and window become energy, each figure with its standard uncertainty (k=1).

A sample at time t stands for [t, t + tick). The energy of a window is the sum over samples of power times the part of
the tick that lies inside the window, so that both marks may fall anywhere inside a tick. Raw samples are integrated,
never filtered ones: a moving average delays, and smears the window's edges.

The uncertainty is a type B evaluation (JCGM 100:2008, 4.3 and 5.1.2): limits from data sheets are taken as rectangular
(limit / sqrt 3), contributions are added in quadrature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.errors import MeasurementInvalid
from fsjoule.model import MIB, Energy, Trace, Value, Window

_SQRT3: Final = math.sqrt(3)


@dataclass(frozen=True, slots=True)
class Instrument:
    """Limits of error of the meter, before calibration.

    INA219A (TI SBOS448G, electrical characteristics): offset 100 uV at the widest range and 75 uV at /2, gain 0.5 %;
    shunt resistor 1 %. `mark_s` bounds how late a mark may be: one byte at 115200 baud and one tick.
    """

    offset_a: float = 1.25e-3
    gain: float = 0.005
    shunt: float = 0.01
    mark_s: float = 1.1e-3

    @property
    def relative(self) -> float:
        """Standard uncertainty of gain and shunt together, as a fraction."""
        return math.hypot(self.gain, self.shunt) / _SQRT3


def energy(
    trace: Trace, window: Window, idle: Window, instrument: Instrument | None = None, *, slack_s: float = 0.0
) -> Energy:
    """The energy of a window, gross and net of the idle power that `idle` shows.

    `slack_s` is how much longer the window is than the work that it brackets: the start of the programs that send the
    marks. What the board spent in it does not belong to the work, so it bounds an error.

    Raises MeasurementInvalid if the trace does not reach over both windows.
    """
    meter = instrument or Instrument()
    idle_w, idle_sd, idle_n = _mean_power(trace, idle)
    duration_s = window.duration_s
    mean_w, sd_w, _ = _mean_power(trace, window)
    gross_mj = mean_w * duration_s * 1e3
    net_mj = (mean_w - idle_w) * duration_s * 1e3

    volts = float(np.max(trace.bus_raw)) * trace.info.bus_lsb_mv * 1e-3
    offset_w = meter.offset_a * volts / _SQRT3
    # One step of the shunt's converter, the coarser of the two: +-1/2 LSB on every sample, taken as fully correlated.
    quantum_w = 0.5 * trace.info.shunt_lsb_uv / trace.info.shunt_uohm * volts / _SQRT3
    mark_s = math.hypot(math.sqrt(2) * meter.mark_s, slack_s) / _SQRT3
    mean_u = _quadrature(mean_w * meter.relative, offset_w, quantum_w)
    # The spread of idle power says how well its mean is known; the offset is common to both and cancels in the net.
    idle_spread_w = idle_sd / math.sqrt(max(1, idle_n))
    gross_u = _quadrature(mean_u * duration_s, mean_w * mark_s) * 1e3
    net_u = _quadrature(
        (mean_w - idle_w) * meter.relative * duration_s,
        math.hypot(idle_spread_w, quantum_w) * duration_s,
        (mean_w - idle_w) * mark_s,
    )
    check_mj, check_sum_mj = _against_cumulative(trace, window)
    return Energy(
        gross_mj=Value(gross_mj, gross_u),
        net_mj=Value(net_mj, net_u * 1e3),
        idle_power_w=Value(idle_w, _quadrature(idle_w * meter.relative, offset_w, quantum_w, idle_spread_w)),
        mean_power_w=Value(mean_w, mean_u),
        power_sd_w=sd_w,
        check_mj=check_mj,
        check_sum_mj=check_sum_mj,
    )


def per_mib(energy_mj: Value, moved_bytes: int) -> Value | None:
    """Millijoules per MiB moved; None where nothing was."""
    if moved_bytes <= 0:
        return None
    return Value(energy_mj.value * MIB / moved_bytes, energy_mj.uncertainty * MIB / moved_bytes)


def _quadrature(*parts: float) -> float:
    return math.sqrt(sum(part * part for part in parts))


def _tick_us(trace: Trace) -> float:
    return 1e6 / trace.info.rate_hz


def _weights_us(trace: Trace, window: Window) -> npt.NDArray[np.float64]:
    """How many microseconds of each sample's tick lie in the window, shape (n,)."""
    start = np.maximum(trace.times_us, window.start_us)
    stop = np.minimum(trace.times_us + _tick_us(trace), window.stop_us)
    return np.clip(stop - start, 0.0, None)


def _mean_power(trace: Trace, window: Window) -> tuple[float, float, int]:
    """Mean power, its SD over samples, and the number of samples.

    A tick without a sample counts as the mean of the others, so that a few lost ones scale nothing; how many may be
    lost is for fsjoule.validity to say.
    """
    if window.duration_s <= 0:
        raise MeasurementInvalid("energy", [f"the window lasts {window.duration_s * 1e3:.3f} ms"])
    weights = _weights_us(trace, window)
    covered_us = float(weights.sum())
    inside = weights > 0
    times = trace.times_us
    if covered_us == 0 or times[0] > window.start_us or times[-1] + _tick_us(trace) < window.stop_us:
        raise MeasurementInvalid("energy", ["the trace does not reach over the whole window"])
    power = trace.power_w[inside]
    mean = float((power * weights[inside]).sum() / covered_us)
    return mean, float(power.std(ddof=1)) if len(power) > 1 else 0.0, len(power)


def _against_cumulative(trace: Trace, window: Window) -> tuple[float | None, float]:
    """The meter's own cumulative energy over the ticks that start in the window, and the sum of raw samples over them.

    The meter tells its cumulative energy at the first tick of each frame. At a tick between two frames it is the one
    before plus the samples since. None where no frame lies on both sides.
    """
    raw = trace.shunt_raw.astype(np.int64) * trace.bus_raw.astype(np.int64)
    to_mj = trace.info.power_lsb_w / trace.info.rate_hz * 1e3
    inside = (trace.times_us >= window.start_us) & (trace.times_us < window.stop_us)
    total = int(raw[inside].sum())
    ticks = trace.ticks[inside]
    if not len(ticks):
        return None, 0.0
    first, after = int(ticks[0]), int(ticks[-1]) + 1
    before = np.flatnonzero(trace.checkpoint_ticks <= first)
    behind = np.flatnonzero(trace.checkpoint_ticks >= after)
    if not len(before) or not len(behind):
        return None, total * to_mj
    low, high = int(before[-1]), int(behind[0])
    head = (trace.ticks >= trace.checkpoint_ticks[low]) & (trace.ticks < first)
    tail = (trace.ticks >= after) & (trace.ticks < trace.checkpoint_ticks[high])
    told = int(trace.checkpoint_raw[high] - trace.checkpoint_raw[low]) - int(raw[head].sum()) - int(raw[tail].sum())
    return told * to_mj, total * to_mj
