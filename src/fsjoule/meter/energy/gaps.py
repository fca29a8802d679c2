"""Power over time from a trace, with its gaps bridged.

Every frame has the sums over all samples before it. The difference of two frames, less the samples between them that
arrived, is the sum of the lost samples: their mean power is spread over the gap. Ticks that the meter itself missed are
in no sum and get the mean of their two neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsjoule.model import Trace

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
