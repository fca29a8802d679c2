"""Power over a window, with every contribution to its uncertainty. docs/energy.md explains each formula.

Gaps of the trace are bridged. Every frame has the sums over all samples before it. The difference of two frames, less
the samples between them that arrived, is the sum of the lost samples: their mean power is spread over the gap. Ticks
that the meter itself missed are in no sum and get the mean of their two neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy.instrument import InstrumentErrors, SteadyErrors
from fsjoule.meter.energy.validity import ValidityLimits
from fsjoule.model import MeterInfo, PlainInfo, Trace, Value, Window
from fsjoule.model.meter import READ_S, TURN_S

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Spans:
    """Stretches of time, ascending, with their mean power. All arrays have shape (n,)."""

    begin_us: Floats
    end_us: Floats
    watts: Floats

    def inside_us(self, start_us: float, stop_us: float) -> Floats:
        return np.clip(np.minimum(self.end_us, stop_us) - np.maximum(self.begin_us, start_us), 0.0, None)


@dataclass(frozen=True, eq=False, slots=True)
class Gaps(Spans):
    """Stretches without samples, with the ticks lost on the line and the ticks missed by the meter."""

    lost: Ints
    missed: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Intervals:
    """Stretches from each frame that arrived to the next one that arrived.

    `begin` and `end` are the frames' first ticks; `first` and `after` index the samples between them. `told` are the
    increments of the meter's sums, `arrived` the sums of the samples that arrived, both of shape (tallies, n).
    """

    begin: Ints
    end: Ints
    first: Ints
    after: Ints
    missed: Ints
    told: Ints
    arrived: Ints

    @property
    def lost(self) -> Ints:
        """Ticks whose samples did not arrive."""
        return self.end - self.begin - (self.after - self.first) - self.missed


def intervals(trace: Trace) -> Intervals:
    edges: Ints = np.searchsorted(trace.ticks, trace.checkpoint_ticks).astype(np.int64)
    tallies = np.stack(trace.tallies)
    sums = np.zeros((len(tallies), len(trace.ticks) + 1), dtype=np.int64)
    np.cumsum(tallies, axis=1, out=sums[:, 1:])
    return Intervals(
        begin=trace.checkpoint_ticks[:-1],
        end=trace.checkpoint_ticks[1:],
        first=edges[:-1],
        after=edges[1:],
        missed=np.diff(trace.checkpoint_missed),
        told=np.diff(np.stack(trace.checkpoint_tallies), axis=1),
        arrived=np.diff(sums[:, edges], axis=1),
    )


def sample_spans(trace: Trace) -> Spans:
    begin_us = trace.times_us.astype(np.float64)
    return Spans(begin_us, begin_us + trace.info.tick_us, trace.power_w)


def gaps(trace: Trace, between: Intervals, watts: Floats) -> Gaps:
    """Stretches between samples, whose powers are `watts`. There must be a sample."""
    lost, missed = between.lost, between.missed
    holed = np.flatnonzero(lost + missed > 0)
    lost, missed, after = lost[holed], missed[holed], between.after[holed]
    # A frame's samples are contiguous, so the gap is behind them.
    begin = between.begin[holed] + (after - between.first[holed])
    lost_w = trace.tallied_w(*(between.told - between.arrived)[:, holed]) / np.maximum(lost, 1)
    last = len(watts) - 1
    neighbours_w = (watts[np.clip(after - 1, 0, last)] + watts[np.clip(after, 0, last)]) / 2
    return Gaps(
        begin_us=_time_us(trace, begin),
        end_us=_time_us(trace, between.end[holed]),
        watts=(lost_w * lost + neighbours_w * missed) / (lost + missed),
        lost=lost,
        missed=missed,
    )


def _time_us(trace: Trace, ticks: Ints) -> Floats:
    """When ticks began, by the nearest sample before them."""
    nearest = np.clip(np.searchsorted(trace.ticks, ticks, side="right") - 1, 0, None)
    return trace.times_us[nearest] + (ticks - trace.ticks[nearest]) * trace.info.tick_us


_SQRT3: Final = math.sqrt(3)
# Times are whole microseconds: a window may lack this much of each tick that it covers.
_ROUNDING_US: Final = 1.0
# A shorter window may hold a change of the power that no reading shows.
_LEAST_READINGS: Final = 3


@dataclass(frozen=True, eq=False, slots=True)
class WindowTrace:
    """A trace, ready for integration over any window. Raises MeasurementInvalid if it has no samples."""

    trace: Trace
    samples: Spans
    between: Intervals
    gaps: Gaps
    lowest_w: float
    highest_w: float

    @classmethod
    def of(cls, trace: Trace) -> WindowTrace:
        if not len(trace.ticks):
            raise MeasurementInvalid("energy", ["the trace has no samples"])
        samples, between = sample_spans(trace), intervals(trace)
        holes = gaps(trace, between, samples.watts)
        watts = np.concatenate([samples.watts, holes.watts])
        return cls(trace, samples, between, holes, float(watts.min()), float(watts.max()))

    @property
    def begin_us(self) -> float:
        return float(self.samples.begin_us[0])

    @property
    def end_us(self) -> float:
        return float(self.samples.end_us[-1])

    def energy_w_us(self, start_us: float, stop_us: float) -> float:
        return float(
            self.samples.watts @ self.samples.inside_us(start_us, stop_us)
            + self.gaps.watts @ self.gaps.inside_us(start_us, stop_us)
        )


@dataclass(frozen=True, slots=True)
class Edge:
    """The lowest and the highest power near a mark, in watts."""

    lowest_w: float
    highest_w: float

    def furthest_w(self, from_w: float) -> float:
        """Largest distance in W between the power here and another."""
        return max(abs(self.lowest_w - from_w), abs(self.highest_w - from_w))


@dataclass(frozen=True, slots=True)
class WindowPower:
    """Power over one window: mean, standard deviation over samples, and standard uncertainties of the mean.

    `sampling_w` covers changes between samples, `gaps_w` the unknown course of power in gaps; `errors` belong to the
    instrument. `late_s` limits how late each end may be.
    """

    mean_w: float
    sd_w: float
    duration_s: float
    samples: int
    lost: int
    missed: int
    errors: SteadyErrors
    sampling_w: float
    gaps_w: float
    edges: tuple[Edge, Edge]
    late_s: tuple[float, float]


def share(
    recording: WindowTrace,
    window: Window,
    instrument: InstrumentErrors,
    limits: ValidityLimits,
    *,
    name: str,
    late_s: tuple[float, float] = (0.0, 0.0),
) -> WindowPower:
    """Integrate over a window, called `name` in messages. Raises MeasurementInvalid if too little is known.

    `late_s`: how late its two ends may be, if that is more than the instrument's marks are.
    """
    late = max(late_s[0], instrument.mark_s), max(late_s[1], instrument.mark_s)
    duration_us = window.stop_us - window.start_us
    if duration_us <= 0:
        raise MeasurementInvalid("energy", [f"{name} lasts {duration_us / 1e3:.3f} ms"])
    _require_readings(duration_us * 1e-6, recording.trace.info, name)
    samples, holes = recording.samples, recording.gaps
    sample_us = samples.inside_us(window.start_us, window.stop_us)
    hole_us = holes.inside_us(window.start_us, window.stop_us)
    covered_us = float(sample_us.sum() + hole_us.sum())
    tick_us = recording.trace.info.tick_us
    if covered_us < duration_us * (1 - _ROUNDING_US / tick_us) - _ROUNDING_US:
        raise MeasurementInvalid("energy", [f"the trace does not reach over {name}"])
    parts = hole_us / (holes.end_us - holes.begin_us)
    missed = float((holes.missed * parts).sum())
    _require_sampled(missed, duration_us / tick_us, limits, name)
    mean_w = float(samples.watts @ sample_us + holes.watts @ hole_us) / covered_us
    mean_w += _sharper_w(recording, window, instrument.sharpening)
    inside = np.flatnonzero(sample_us > 0)
    chosen = inside if len(inside) else np.arange(len(recording.trace.ticks))
    errors = instrument.steady(*recording.trace.mean_load(chosen))
    return WindowPower(
        mean_w=mean_w,
        sd_w=float(samples.watts[inside].std(ddof=1)) if len(inside) > 1 else 0.0,
        duration_s=duration_us * 1e-6,
        samples=len(inside),
        lost=round(float((holes.lost * parts).sum())),
        missed=round(missed),
        errors=errors,
        sampling_w=_sampling_w(recording, inside, duration_us / tick_us),
        gaps_w=_gaps_w(recording, parts) / duration_us,
        edges=(
            _edge(recording, window.start_us, instrument, late[0]),
            _edge(recording, window.stop_us, instrument, late[1]),
        ),
        late_s=late,
    )


def _sharper_w(recording: WindowTrace, window: Window, sharpening: float) -> float:
    """What the mean power lacks because samples spread a step at a mark over both sides of it (docs/energy.md#bursts).

    The window's energy is compared with that of the windows a tick before and after it: inside they have the same, and
    at a step the three differ. 0 where the trace does not reach over all three.
    """
    tick_us = recording.trace.info.tick_us
    first_us, last_us = window.start_us - tick_us, window.stop_us + tick_us
    if not sharpening or recording.begin_us > first_us or recording.end_us < last_us:
        return 0.0
    here, before, after = (
        recording.energy_w_us(window.start_us + by_us, window.stop_us + by_us) for by_us in (0.0, -tick_us, tick_us)
    )
    return sharpening * (2 * here - before - after) / (window.stop_us - window.start_us)


def _require_sampled(missed: float, ticks: float, limits: ValidityLimits, name: str) -> None:
    if missed > limits.missed_fraction * ticks:
        counted = f"{missed:.0f} of the {ticks:.0f} ticks of {name}"
        allowed = f"allowed are {limits.missed_fraction:.1%}"
        raise MeasurementInvalid("energy", [f"the meter itself missed {counted}; {allowed}"])


def _require_readings(duration_s: float, info: MeterInfo, name: str) -> None:
    """Raise MeasurementInvalid for too few readings of an instrument that is asked again and again.

    Asked more often than its chip converts, it shows the same reading again.
    """
    settings = info.settings if isinstance(info, PlainInfo) else {}
    new_s = max(settings.get(READ_S, 0.0), settings.get(TURN_S, 0.0))
    if duration_s < _LEAST_READINGS * new_s:
        slow = f"this instrument has a new reading every {new_s * 1e3:.3g} ms"
        advice = f"{_LEAST_READINGS} readings are needed; let the work last longer, or take a faster instrument"
        raise MeasurementInvalid("energy", [f"{name} lasts {duration_s * 1e3:.3g} ms, and {slow}: {advice}"])


def _sampling_w(recording: WindowTrace, inside: np.ndarray[tuple[int], np.dtype[np.intp]], ticks: float) -> float:
    """Standard uncertainty in W from samples that see only a part of their ticks, and from noise.

    Half the mean square successive difference estimates the variance of one sample without taking a slow change of the
    load for noise (von Neumann, Annals of Mathematical Statistics 12, 1941).
    """
    watts, tick = recording.samples.watts[inside], recording.trace.ticks[inside]
    steps = np.diff(watts)[np.diff(tick) == 1]
    if not len(steps):
        return 0.0
    return math.sqrt(float(np.mean(steps * steps)) / 2 / max(ticks, 1.0))


def _gaps_w(recording: WindowTrace, parts: Floats) -> float:
    """Standard uncertainty of the energy of all gaps, in W us.

    Only the whole energy of a gap is known. Let the fraction f of a gap of length T lie in the window: with its two
    parts at the lowest and the highest power seen, the window's energy shifts by f (1 - f) T times their difference. A
    missed tick may have had any power between the two; so may one between two late readings of the power itself.
    """
    holes = recording.gaps
    difference_w = recording.highest_w - recording.lowest_w
    split_us = parts * (1 - parts) * (holes.end_us - holes.begin_us)
    info = recording.trace.info
    keeps_no_sum = isinstance(info, PlainInfo) and READ_S in info.settings
    missed_us = parts * (holes.missed + (holes.lost if keeps_no_sum else 0)) * info.tick_us
    return difference_w / _SQRT3 * math.sqrt(float((split_us**2 + missed_us**2).sum()))


def _edge(recording: WindowTrace, mark_us: float, instrument: InstrumentErrors, late_s: float) -> Edge:
    """Lowest and highest power near a mark, as far as a late mark plus a displaced sample may reach."""
    reach_us = late_s * 1e6 + max(instrument.sample_s * 1e6, recording.trace.info.tick_us)
    near = [
        spans.watts[(spans.end_us >= mark_us - reach_us) & (spans.begin_us <= mark_us + reach_us)]
        for spans in (recording.samples, recording.gaps)
    ]
    watts = np.concatenate(near)
    return Edge(float(watts.min()), float(watts.max()))


def marks_j(part: WindowPower, instrument: InstrumentErrors, base_w: float = 0.0) -> float:
    """Standard uncertainty in J from the window's two ends, for the energy above a power of `base_w`.

    A late mark moves energy across one end. Samples displaced alike at both ends move the difference of the powers
    there. The displacement also changes from tick to tick, which counts as much as the power changes near a mark.
    """
    start, stop = part.edges
    late = [edge.furthest_w(base_w) * late_s for edge, late_s in zip(part.edges, part.late_s, strict=True)]
    same = max(stop.furthest_w(start.lowest_w), stop.furthest_w(start.highest_w)) * instrument.sample_s
    each = [(edge.highest_w - edge.lowest_w) * instrument.sample_s for edge in part.edges]
    return math.hypot(*late, same, *each) / _SQRT3


_BLOCKS: Final = 12
# Of a slope with 10 degrees of freedom one in a hundred is further off without any drift (Student, two-sided).
DRIFT_FAR: Final = 3.169
_LEAST_IN_BLOCK: Final = 10


def drift(trace: Trace, window: Window) -> Value | None:
    """The slope of the power in W a minute, with its standard uncertainty; None with too few samples.

    A straight line through the means of 12 equal parts of the window. The uncertainty comes from their distances to the
    line, so it is that of independent parts: a load that comes and goes over parts looks like noise, and widens it.
    """
    part_us = (window.stop_us - window.start_us) / _BLOCKS
    at = np.floor((trace.times_us - window.start_us) / part_us).astype(np.int64)
    inside = (at >= 0) & (at < _BLOCKS)
    counts = np.bincount(at[inside], minlength=_BLOCKS)
    if counts.min() < _LEAST_IN_BLOCK:
        return None
    means = np.bincount(at[inside], trace.power_w[inside], minlength=_BLOCKS) / counts
    minutes = (np.arange(_BLOCKS) - (_BLOCKS - 1) / 2) * part_us / 60e6
    squares = float(minutes @ minutes)
    slope = float(minutes @ means) / squares
    rest = means - means.mean() - slope * minutes
    return Value(slope, math.sqrt(float(rest @ rest) / (_BLOCKS - 2) / squares))
