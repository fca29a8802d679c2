"""The change-point detector: ruptures, made safe against stalls and against its own eagerness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fsjoule.statistics.ratios import Floats

# Median absolute deviation to standard deviation of a normal distribution.
_MAD_TO_SD: Final = 1.4826
# In standard deviations of the noise: what lies farther out is drawn in, and no level is taken to be calmer than this.
_CLIP: Final = 3.0
_LEAST_SD: Final = 0.5


@dataclass(frozen=True, slots=True)
class RupturesFinder:
    """Exact segmentation by level (KernelCPD), weak changes taken out again.

    Values are expressed in standard deviations of their noise, which successive differences show whatever the levels,
    and drawn in to three of them, so that a stall is no change. A change costs `penalty` times ln n (Arlot, Celisse,
    Harchaoui: A kernel multiple change-point algorithm, JMLR 20, 2019; Truong, Oudre, Vayatis: ruptures, Signal
    Processing 167, 2020). Then, weakest first, each change is dropped whose two neighbouring levels a t test tells
    apart with no less than `max_p`; this is the merge step of Fleming et al., Hunter, ICPE 2023.
    """

    penalty: float = 3.0
    max_p: float = 1e-4
    least_points: int = 3

    def find(self, values: Floats) -> tuple[int, ...]:
        """The indexes at which a new level starts. Fewer than two levels' worth of points have none."""
        if len(values) < 2 * self.least_points:
            return ()
        steady = drawn_in(values)
        penalty = self.penalty * math.log(len(values))
        return _merged(steady, _segment_starts(steady, penalty, self.least_points), self.max_p)


def drawn_in(values: Floats) -> Floats:
    """Values about their median, in standard deviations of their noise, those beyond three drawn in; shape (n,).

    All zero where the values are all the same.
    """
    noise = _noise(values)
    return np.clip((values - np.median(values)) / noise, -_CLIP, _CLIP) if noise > 0 else np.zeros(len(values))


def _noise(values: Floats) -> float:
    """Standard deviation of the noise about levels that change now and then."""
    steps = np.diff(values)
    robust = _MAD_TO_SD * float(np.median(np.abs(steps - np.median(steps))))
    # Where most points equal their neighbours the median says nothing.
    return (robust or float(steps.std())) / math.sqrt(2)


def _segment_starts(values: Floats, penalty: float, least_points: int) -> list[int]:
    """Where segments start, but for the first: the exact minimum of squared distances plus `penalty` a change."""
    from ruptures import KernelCPD

    detector: Any = KernelCPD(kernel="linear", min_size=least_points)
    return [int(start) for start in detector.fit(values[:, None]).predict(pen=penalty)[:-1]]


def _merged(values: Floats, starts: list[int], max_p: float) -> tuple[int, ...]:
    kept = list(starts)
    while kept:
        edges = [0, *kept, len(values)]
        p_values = [
            _p(values[left:start], values[start:right])
            for left, start, right in zip(edges, edges[1:], edges[2:], strict=False)
        ]
        weakest = int(np.argmax(p_values))
        if p_values[weakest] < max_p:
            break
        del kept[weakest]
    return tuple(kept)


def _p(before: Floats, after: Floats) -> float:
    from scipy.special import stdtr

    degrees = len(before) + len(after) - 2
    squares = float(np.square(before - before.mean()).sum() + np.square(after - after.mean()).sum())
    sd = max(math.sqrt(squares / degrees), _LEAST_SD)
    distance = abs(float(after.mean() - before.mean()))
    return 2 * float(stdtr(degrees, -distance / (sd * math.sqrt(1 / len(before) + 1 / len(after)))))
