"""Reasons not to believe a measurement, and a note on one of the next: docs/energy.md explains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.model import Energy, Ina219Info, MeterInfo, SampleCounts, Trace, Window
from fsjoule.model.labels import counted


@dataclass(frozen=True, slots=True)
class ValidityLimits:
    """Largest deviations of a valid measurement.

    A window may be longer than the board's own time by the board's allowance plus `window_excess` of the runtime: the
    marks bracket the work, and the programs that send them start first. It may be shorter by `window_deficit_s`, the
    resolution of fio's clock (1 ms) and of the mark line.

    The meter's sums bridge samples lost on the line, up to `lost_fraction` of a trace. Nothing is known of ticks that
    the meter itself missed: at most `missed_fraction` of a window may be filled in.
    """

    window_excess: float = 0.02
    window_deficit_s: float = 0.005
    lost_fraction: float = 0.1
    missed_fraction: float = 0.01


DEFAULT: Final = ValidityLimits()


def window_complaints(
    window: Window, duration_s: float, allowed_s: float, limits: ValidityLimits = DEFAULT
) -> list[str]:
    """Complaints unless the marks bracket the board's own time; `allowed_s` is the board's allowance."""
    excess_s = window.duration_s - duration_s
    allowed_s += limits.window_excess * duration_s
    if -limits.window_deficit_s <= excess_s <= allowed_s:
        return []
    return [
        (
            f"the window ({window.duration_s:.3f} s) and the board's own time ({duration_s:.3f} s) differ by "
            f"{excess_s * 1e3:+.0f} ms; allowed are {-limits.window_deficit_s * 1e3:.0f} to {allowed_s * 1e3:+.0f} ms"
        )
    ]


def sample_complaints(counts: SampleCounts, limits: ValidityLimits = DEFAULT) -> list[str]:
    """Complaints if too many samples were lost on the line. `energy` checks those that the meter missed."""
    if counts.lost <= limits.lost_fraction * counts.expected:
        return []
    return [
        (
            f"{counts.lost} of {counts.expected} samples were lost between meter and host; allowed are "
            f"{limits.lost_fraction:.0%}"
        )
    ]


def clock_complaints(trace: Trace) -> list[str]:
    """Complaints if the samples and the host's clock differ: it is not known in which windows."""
    return [f"the meter reported: {fault}" for fault in trace.clock_faults]


def clipping_complaints(trace: Trace, window: Window, name: str) -> list[str]:
    """Complaints if samples of a window left the meter's range: the true value is unknown."""
    inside = (trace.times_us + trace.info.tick_us > window.start_us) & (trace.times_us < window.stop_us)
    counts = [(int(np.count_nonzero(clipped.samples[inside])), clipped) for clipped in trace.clipped]
    return [
        f"{counted(count, 'sample')} of {name} reached {clipped.limit}: {clipped.advice}"
        for count, clipped in counts
        if count
    ]


def mark_complaints(trace: Trace, marks: tuple[str, str]) -> list[str]:
    """Complaints unless each of a window's two marks arrived exactly once."""
    counts = [sum(mark.text == text for mark in trace.marks) for text in marks]
    if 0 in counts:
        seen = ", ".join(mark.text for mark in trace.marks) or "none"
        what = f"the marks {' and '.join(marks)} did not both arrive (seen: {seen})"
        if trace.mark_faults:
            what += f"; the meter reported: {'; '.join(trace.mark_faults)}"
        return [what]
    return [
        f"the mark {text} was sent once and arrived {count} times: where the window ends is not certain"
        for text, count in zip(marks, counts, strict=True)
        if count != 1
    ]


def trace_notes(trace: Trace) -> list[str]:
    """Events in a trace, for the reader. The other functions here say whether they harm the energy."""
    notes = [f"the meter reported: {fault}" for fault in trace.faults if fault not in trace.clock_faults]
    if trace.lost:
        notes.append("samples were lost between meter and host; the meter's own sums bridge the gaps")
    if trace.missed:
        notes.append("the meter missed ticks; they are filled with the mean of their neighbours")
    return notes


def energy_complaints(energy: Energy) -> list[str]:
    """Complaints if the samples do not add up to the meter's own sum over the same ticks."""
    if energy.check_mj is None:
        return []
    if abs(energy.check_mj - energy.check_sum_mj) <= 1e-9 * max(1.0, abs(energy.check_mj)):
        return []
    return [
        (
            f"the samples add up to {energy.check_sum_mj:.6f} mJ, the meter accumulated {energy.check_mj:.6f} mJ over "
            "the same ticks"
        )
    ]


# By HZ: the meter's rates at which a calibrated meter's stated uncertainty covers a load that pulses with the tick in
# less than 95 % of windows, and the rate to set instead. tests/statistics/meter_rates.py simulates 1,000 windows of
# each pair of HZ and a rate that the meter has. With HZ 300 all rates are covered.
_IN_STEP_HZ: Final = {
    100: ((100, 200, 400, 500, 800, 1000, 1600), 625),
    250: ((125, 250, 500, 1000, 1250), 800),
    1000: ((500, 1000, 2000), 625),
}


def tick_notes(meter: MeterInfo, tick_hz: int) -> list[str]:
    """A note if the meter's rate is in step with the kernel's tick, `tick_hz` times a second; 0 is not known."""
    # Other instruments have other ways to sample.
    if not isinstance(meter, Ina219Info) or tick_hz not in _IN_STEP_HZ:
        return []
    in_step_hz, better_hz = _IN_STEP_HZ[tick_hz]
    if meter.rate_hz not in in_step_hz:
        return []
    said = (
        f"the meter's {meter.rate_hz} samples/s are in step with the kernel's tick (HZ {tick_hz}): a load that pulses "
        "with the tick can make joules wrong by percents, and their uncertainty does not tell. Before the next run: "
        f"fsjoule meter set --rate {better_hz} --save"
    )
    return [said]
