"""The change-point detector: ruptures, made robust against stalls, memory and bursts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from fsjoule.statistics.memory import (
    LEAST_POINTS,
    LEVEL_NIGHTS,
    MOST_POINTS,
    Levels,
    about,
    bursts,
    levels,
    needed,
    noise_of,
    robust_line,
    step,
)
from fsjoule.statistics.ratios import Floats

# No level counts as calmer than this, in standard deviations of the noise.
_LEAST_SD: Final = 0.5
# A history of fewer nights before a change does not know whether this series has bursts.
_YOUNG: Final = 56
_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class RupturesFinder:
    """Exact segmentation by level (KernelCPD), with weak changes removed again.

    Values are scaled to standard deviations of their noise, which successive differences show at any level, and drawn
    in to three of them about their level, so that a stall is no change. A change costs `penalty` times ln n (Arlot,
    Celisse, Harchaoui: A kernel multiple change-point algorithm, JMLR 20, 2019; Truong, Oudre, Vayatis: ruptures,
    Signal Processing 167, 2020). Then changes whose two levels differ with a p of `max_p` or more in a t test are
    dropped, weakest first, as in the merge step of Fleming et al., Hunter, ICPE 2023, and those that memory, a drift or
    a slow curve explain as well (`statistics.memory`). A level of a week or less that goes back is a burst. A new
    level must hold for a week, single nights apart, unless 56 nights before it had no burst.
    """

    penalty: float = 3.0
    max_p: float = 1e-4
    least_points: int = LEAST_POINTS

    def find(self, values: Floats, level: int = LEVEL_NIGHTS) -> tuple[int, ...]:
        """The indexes at which a new level starts; empty for fewer points than two levels need."""
        cut = max(0, len(values) - MOST_POINTS)
        if len(values) < 2 * self.least_points or (noise := noise_of(values[cut:])) == 0:
            return ()
        scaled = (values[cut:] - np.median(values[cut:])) / noise
        starts, squares, seen = self._about(scaled, np.zeros(len(scaled)))
        if not starts:
            return ()
        upon, left, _ = self._about(scaled, robust_line(scaled), rounds=1)
        price = 3 * math.log(len(scaled))
        if _cost(left, len(scaled)) + price * (len(upon) + 1) < _cost(squares, len(scaled)) + price * len(starts):
            starts = upon
        if not starts:
            return ()
        # Nights of a level that may be a burst are no evidence for another one.
        if not self._last_holds(scaled, starts, level, bursts(scaled) + seen > 0):
            return self.find(values[: cut + starts[-1]], level)
        if not _first_holds(scaled, starts, level, bursts(scaled) + seen > 0):
            cut += starts[0]
            return tuple(cut + start for start in self.find(values[cut:], level))
        return tuple(cut + start for start in starts)

    def _about(self, scaled: Floats, base: Floats, rounds: int = _ROUNDS) -> tuple[list[int], float, int]:
        """Starts of levels about a base, the squares that they leave, and the bursts.

        Values are drawn in about the levels that were found, again and again: about one median of all, the second of
        two large steps would vanish.
        """
        known: list[int] | None = None
        starts: list[int] = []
        seen = 0
        curve, flat = base, levels(scaled - base, ())
        for _ in range(rounds):
            starts, seen = self._tested(scaled, curve, about(scaled, base if known is None else curve + flat))
            flat = levels(scaled - curve, starts)
            if starts == known or not starts:
                break
            known = starts
        return starts, float(np.square(about(scaled, curve + flat) - curve - flat).sum()), seen

    def _tested(self, scaled: Floats, curve: Floats, calm: Floats) -> tuple[list[int], int]:
        """Starts of levels that neither chance nor memory explains, and the number of bursts among them."""
        starts = _segment_starts(calm, self.penalty * math.log(len(calm)), self.least_points)
        starts = list(_merged(calm, starts, self.max_p))
        # About the new levels: in a short history drawn in values make a large step as small as memory.
        calm = about(scaled, curve + levels(scaled - curve, starts))
        starts, calm, seen = _without_bursts(starts, calm)
        starts = list(_merged(calm, starts, self.max_p))
        if not starts:
            return [], seen
        found = Levels(calm, [step(len(calm), start) for start in starts])
        left = list(range(len(starts)))
        while left:
            edges = [0, *(starts[each] for each in left)]
            enough = [needed(len(calm), calm[begin : begin if seen else end]) for begin, end in pairwise(edges)]
            spare = found.evidence(left) - enough
            weakest = int(np.argmin(spare))
            if spare[weakest] >= 0:
                break
            del left[weakest]
        return [starts[each] for each in left], seen

    def _last_holds(self, scaled: Floats, starts: list[int], level: int, has_bursts: bool) -> bool:
        least = level if has_bursts or starts[-1] < _YOUNG else self.least_points
        return _in_a_row(scaled[starts[-1] :], scaled[[0, *starts][-2] : starts[-1]], has_bursts) >= least


def _first_holds(scaled: Floats, starts: list[int], level: int, has_bursts: bool) -> bool:
    return _in_a_row(scaled[: starts[0]], scaled[starts[0] : [*starts, len(scaled)][1]], has_bursts) >= level


def drawn_in(values: Floats) -> Floats:
    """Deviations from the median in standard deviations of the noise, drawn in to ±3; shape (n,)."""
    noise = noise_of(values)
    return about((values - np.median(values)) / noise, 0.0) if noise > 0 else np.zeros(len(values))


def _cost(squares: float, points: int) -> float:
    return points * math.log((squares + 1) / points)


def _without_bursts(starts: list[int], calm: Floats) -> tuple[list[int], Floats, int]:
    """Starts without levels of a week or less that go back, values without those bursts, and their number."""
    calm, seen = calm.copy(), 0
    while True:
        edges = [0, *starts, len(calm)]
        mean = [float(part.mean()) for part in np.split(calm, starts)]
        burst = next((k for k in range(1, len(mean) - 1) if _is_burst(edges, mean, k)), None)
        if burst is None:
            return starts, calm, seen
        calm[edges[burst] : edges[burst + 1]] -= mean[burst] - (mean[burst - 1] + mean[burst + 1]) / 2
        starts = [start for start in starts if start not in (edges[burst], edges[burst + 1])]
        seen += 1


def _is_burst(edges: Sequence[int], mean: Sequence[float], k: int) -> bool:
    away = min(abs(mean[k] - mean[k - 1]), abs(mean[k] - mean[k + 1]))
    return edges[k + 1] - edges[k] <= LEVEL_NIGHTS and abs(mean[k + 1] - mean[k - 1]) < away / 2


def _in_a_row(level: Floats, other: Floats, has_bursts: bool) -> int:
    """The most nights of a level in a row that lie nearer to it than to the other.

    Single nights apart do not end a row, but where there are bursts: two with a night between them are no level.
    """
    own, others = float(np.median(level)), float(np.median(other))
    apart = 0 if has_bursts else 1
    most = row = gap = 0
    for nearer in (level - (own + others) / 2) * np.sign(own - others) > 0:
        row, gap = (row + 1, 0) if nearer else (row if gap < apart else 0, gap + 1)
        most = max(most, row)
    return most


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
