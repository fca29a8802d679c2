"""The change-point detector: ruptures, made robust against stalls and false changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fsjoule.statistics.ratios import Floats

# Median absolute deviation to standard deviation of a normal distribution.
_MAD_TO_SD: Final = 1.4826
# In standard deviations of the noise: farther values are drawn in, and no level counts as calmer than the second.
_CLIP: Final = 3.0
_LEAST_SD: Final = 0.5


@dataclass(frozen=True, slots=True)
class RupturesFinder:
    """Exact segmentation by level (KernelCPD), with weak changes removed again.

    Values are scaled to standard deviations of their noise, which successive differences show at any level, and drawn
    in to three of them, so that a stall is no change. A change costs `penalty` times ln n (Arlot, Celisse, Harchaoui: A
    kernel multiple change-point algorithm, JMLR 20, 2019; Truong, Oudre, Vayatis: ruptures, Signal Processing 167,
    2020). Then changes whose two levels differ with a p of `max_p` or more in a t test are dropped, weakest first, as
    in the merge step of Fleming et al., Hunter, ICPE 2023.
    """

    penalty: float = 3.0
    max_p: float = 1e-4
    least_points: int = 3

    def find(self, values: Floats) -> tuple[int, ...]:
        """The indexes at which a new level starts; empty for fewer points than two levels need."""
        if len(values) < 2 * self.least_points:
            return ()
        steady = drawn_in(values)
        penalty = self.penalty * math.log(len(values))
        return _merged(steady, _segment_starts(steady, penalty, self.least_points), self.max_p)


def drawn_in(values: Floats) -> Floats:
    """Deviations from the median in standard deviations of the noise, drawn in to ±3; shape (n,)."""
    noise = _noise(values)
    return np.clip((values - np.median(values)) / noise, -_CLIP, _CLIP) if noise > 0 else np.zeros(len(values))


def _noise(values: Floats) -> float:
    """Standard deviation of the noise about levels that sometimes change."""
    steps = np.diff(values)
    robust = _MAD_TO_SD * float(np.median(np.abs(steps - np.median(steps))))
    # The median is zero if most points equal their neighbours.
    return (robust or float(steps.std())) / math.sqrt(2)


def _segment_starts(values: Floats, penalty: float, least_points: int) -> list[int]:
    """Starts of all segments but the first: the exact minimum of squared distances plus `penalty` per change."""
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
