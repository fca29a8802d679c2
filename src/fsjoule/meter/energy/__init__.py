"""A trace and a window become energy; each figure has its standard uncertainty (k=1).

A sample at time t stands for [t, t + tick). The energy of a window is the sum over its samples: power times the part of
the tick inside the window. So both marks may fall anywhere in a tick. The samples are raw, because a filter delays them
and smears the window's edges. Where frames were lost, the meter's own sums bridge the gap (window.py).

The uncertainty is a type B evaluation (JCGM 100:2008, 4.3.7 and 5.1.2): limits are rectangular (limit / sqrt 3), and
contributions are added in quadrature. docs/energy.md has every formula and the sources of its numbers.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy import stated
from fsjoule.meter.energy.ina219 import Ina219
from fsjoule.meter.energy.instrument import HostStamped, InstrumentErrors
from fsjoule.meter.energy.validity import DEFAULT, ValidityLimits
from fsjoule.meter.energy.window import WindowPower, WindowTrace, marks_j, share
from fsjoule.meter.instruments import INSTRUMENTS
from fsjoule.model import MIB, Energy, EnergyBudget, Ina219Info, MarkSource, MeterInfo, PlainInfo, Trace, Value, Window

_SQRT3: Final = math.sqrt(3)


def energy(
    trace: Trace,
    window: Window,
    idle: Window,
    instrument: InstrumentErrors | None = None,
    *,
    slack_s: float = 0.0,
    late_s: tuple[float, float] = (0.0, 0.0),
    limits: ValidityLimits = DEFAULT,
) -> Energy:
    """The energy of a window, gross and net of the idle power in the window `idle`.

    `instrument` None: the limits that the trace's own info and marks imply. `slack_s`: how much longer the window is
    than the work, because programs that send the marks start inside it. Their energy is not the work's and so bounds
    an error. `late_s`: how late the window's two ends may be, if that is more than the meter's marks are.

    Raises MeasurementInvalid if the trace does not cover both windows, or if the meter missed too many ticks.
    """
    meter = instrument or instrument_of(trace.info, source_of(trace))
    recording = WindowTrace.of(trace)
    shift_us = meter.shift_s * 1e6
    shown = Window(window.start_us + shift_us, window.stop_us + shift_us)
    work = share(recording, shown, meter, limits, name="the window", late_s=late_s)
    rest = share(recording, idle, meter, limits, name="the idle window")
    gross, net = _gross_budget(work, meter, slack_s), _net_budget(work, rest, meter, slack_s)
    check_mj, check_sum_mj = _against_cumulative(recording, window)
    per_watt = 1e3 * work.duration_s
    return Energy(
        gross_mj=Value(work.mean_w * per_watt, gross.total_mj),
        net_mj=Value((work.mean_w - rest.mean_w) * per_watt, net.total_mj),
        idle_power_w=Value(rest.mean_w, math.hypot(_power_u(rest), _spread_w(rest))),
        mean_power_w=Value(work.mean_w, _power_u(work)),
        power_sd_w=work.sd_w,
        check_mj=check_mj,
        check_sum_mj=check_sum_mj,
        lost_ticks=work.lost,
        missed_ticks=work.missed,
        gross_budget=gross,
        net_budget=net,
    )


def instrument_of(info: MeterInfo, marks: MarkSource = MarkSource.LINE) -> InstrumentErrors:
    """The errors of a meter, with marks from one source. Raises MeasurementInvalid for an unknown instrument."""
    if isinstance(info, Ina219Info):
        return Ina219.of(info, marks)
    kind = INSTRUMENTS.get(info.instrument)
    if kind is None and info.settings.keys() >= stated.NEEDED:
        return stated.errors(info, marks)  # another's driver: its user states its limits
    if kind is None:
        what = f"this version of fsjoule does not know the instrument {info.instrument!r}, nor its errors"
        raise MeasurementInvalid("energy", [f"{what}: update fsjoule"])
    found = kind.errors().errors(info, marks)
    # A line of a UART that no instrument of these hears itself: the host stamps it.
    return HostStamped(found) if marks is MarkSource.LINE else found


def source_of(trace: Trace) -> MarkSource:
    """Where the marks come from: a mark line, unless there are marks of another source only, or none."""
    sources = {mark.source for mark in trace.marks} or {
        MarkSource.HOST if isinstance(trace.info, PlainInfo) else MarkSource.LINE
    }
    return MarkSource.LINE if MarkSource.LINE in sources else min(sources)


def per_mib(energy_mj: Value, moved_bytes: int) -> Value | None:
    """Millijoules per MiB moved; None if nothing was moved."""
    if moved_bytes <= 0:
        return None
    return Value(energy_mj.value * MIB / moved_bytes, energy_mj.uncertainty * MIB / moved_bytes)


def _power_u(part: WindowPower) -> float:
    """Standard uncertainty in W of a mean power, without the part that the window's ends contribute."""
    return math.hypot(
        part.errors.shunt_rounding_w,
        part.errors.bus_rounding_w,
        part.errors.offset_w,
        part.mean_w * part.errors.gain,
        part.mean_w * part.errors.shunt,
        part.sampling_w,
        part.gaps_w,
    )


def _spread_w(rest: WindowPower) -> float:
    return rest.sd_w / math.sqrt(max(1, rest.samples))


def _gross_budget(work: WindowPower, meter: InstrumentErrors, slack_s: float) -> EnergyBudget:
    per_watt = 1e3 * work.duration_s
    return EnergyBudget(
        shunt_rounding_mj=work.errors.shunt_rounding_w * per_watt,
        bus_rounding_mj=work.errors.bus_rounding_w * per_watt,
        offset_mj=work.errors.offset_w * per_watt,
        gain_mj=abs(work.mean_w) * work.errors.gain * per_watt,
        shunt_mj=abs(work.mean_w) * work.errors.shunt * per_watt,
        marks_mj=marks_j(work, meter) * 1e3,
        slack_mj=abs(work.mean_w) * slack_s / _SQRT3 * 1e3,
        sampling_mj=work.sampling_w * per_watt,
        gaps_mj=work.gaps_w * per_watt,
        idle_mj=0.0,
    )


def _net_budget(work: WindowPower, rest: WindowPower, meter: InstrumentErrors, slack_s: float) -> EnergyBudget:
    """Budget of a difference of two powers: their common errors cancel.

    Both powers have the same offset. Their readings are rounded at two places of the scale, so rounding stays.
    """
    per_watt = 1e3 * work.duration_s
    net_w = abs(work.mean_w - rest.mean_w)
    return EnergyBudget(
        shunt_rounding_mj=math.hypot(work.errors.shunt_rounding_w, rest.errors.shunt_rounding_w) * per_watt,
        bus_rounding_mj=math.hypot(work.errors.bus_rounding_w, rest.errors.bus_rounding_w) * per_watt,
        offset_mj=0.0,
        gain_mj=net_w * work.errors.gain * per_watt,
        shunt_mj=net_w * work.errors.shunt * per_watt,
        marks_mj=marks_j(work, meter, rest.mean_w) * 1e3,
        slack_mj=net_w * slack_s / _SQRT3 * 1e3,
        sampling_mj=work.sampling_w * per_watt,
        gaps_mj=work.gaps_w * per_watt,
        idle_mj=math.hypot(_spread_w(rest), rest.gaps_w) * per_watt,
    )


def _against_cumulative(recording: WindowTrace, window: Window) -> tuple[float | None, float]:
    """(samples, meter's own sums) in mJ over the ticks that begin in the window, to be compared.

    Only frames without a loss before the next frame count: there the two must agree. None without such frames.
    """
    trace, between = recording.trace, recording.between
    inside = (trace.times_us >= window.start_us) & (trace.times_us < window.stop_us)
    counted = np.concatenate([[0], np.cumsum(inside)])
    touched = (counted[between.after] > counted[between.first]) & (between.lost == 0)
    if not touched.any():
        return None, 0.0
    # Samples of these frames outside the window are subtracted from both.
    frames = np.zeros(len(trace.ticks) + 1, dtype=np.int64)
    np.add.at(frames, between.first[touched], 1)
    np.add.at(frames, between.after[touched], -1)
    outside = (np.cumsum(frames[:-1]) > 0) & ~inside
    beyond = np.stack(trace.tallies)[:, outside].sum(axis=1)
    told = between.told[:, touched].sum(axis=1) - beyond
    sums = between.arrived[:, touched].sum(axis=1) - beyond
    told_mj, sum_mj = trace.tallied_w(*np.stack([told, sums], axis=1)) * (1e3 / trace.info.rate_hz)
    return float(told_mj), float(sum_mj)
