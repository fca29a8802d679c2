"""The change-point detector: ruptures, made robust against stalls, memory and bursts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from fsjoule.statistics.memory import (
    CLIP,
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
    running_median,
    step,
)
from fsjoule.statistics.ratios import Floats

# No level counts as calmer than this, in standard deviations of the noise.
_LEAST_SD: Final = 0.5
# A history of fewer nights before a change does not know whether this series has bursts.
_YOUNG: Final = 56
_ROUNDS: Final = 8
_NEARBY: Final = 15
# What a further step of a staircase costs, in nats times ln n (as in Schwarz's criterion), and a staircase itself.
_FURTHER: Final = 1.2
_STAIRCASE: Final = 2.0
# A larger share of points far off their level is no stalls, but another level of the same nights.
_MOST_STALLS: Final = 1 / 8


@dataclass(frozen=True, slots=True)
class RupturesFinder:
    """Exact segmentation by level (KernelCPD), with weak changes removed again.

    Values are scaled to standard deviations of their noise, which successive differences show at any level, and drawn
    in to three of them about their level, so that a stall is no change. A change costs `penalty` times ln n (Arlot,
    Celisse, Harchaoui: A kernel multiple change-point algorithm, JMLR 20, 2019; Truong, Oudre, Vayatis: ruptures,
    Signal Processing 167, 2020). Then changes whose two levels differ with a p of `max_p` or more in a t test are
    dropped, weakest first, as in the merge step of Fleming et al., Hunter, ICPE 2023, and those that memory, a drift or
    a slow curve explain as well (`statistics.memory`). Each alone, the steps of a staircase look like memory: if they
    do, levels that a segmentation without outliers finds are judged together. A level of a week or less that goes back
    is a burst. A new level must hold for a week, single nights apart, unless 56 nights before it had no burst.
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
        flat = np.zeros(len(scaled))
        starts, seen = self._more(scaled, *self._about(scaled, flat), level)
        if not starts:
            return ()
        curve = flat
        upon, _ = self._about(scaled, sloping := robust_line(scaled), rounds=1)
        if _cost(scaled, sloping, upon) + 3 * math.log(len(scaled)) < _cost(scaled, flat, starts):
            starts, curve = upon, sloping
        if not starts:
            return ()
        # Nights of a level that may be a burst are no evidence for another one.
        if not self._last_holds(scaled, starts, level, bursts(scaled) + seen > 0):
            return self.find(values[: cut + starts[-1]], level)
        if not _first_holds(scaled, starts, level, bursts(scaled) + seen > 0):
            cut += starts[0]
            return tuple(cut + start for start in self.find(values[cut:], level))
        return tuple(cut + start for start in _placed(scaled - curve, starts, self.least_points))

    def _about(self, scaled: Floats, base: Floats, rounds: int = _ROUNDS) -> tuple[list[int], int]:
        """Starts of levels about a base, and the number of bursts.

        Values are drawn in about the levels that were found, again and again: about one median of all, the second of
        two large steps would vanish.
        """
        known: list[int] | None = None
        starts: list[int] = []
        seen = 0
        curve, flat = base, levels(scaled - base, ())
        for _ in range(rounds):
            calm = about(scaled, base if known is None else curve + flat)
            starts, seen = self._tested(scaled, curve, calm)
            flat = levels(scaled - curve, starts)
            if starts == known or not starts:
                break
            known = starts
        return starts, seen

    def _more(self, scaled: Floats, starts: list[int], seen: int, level: int) -> tuple[list[int], int]:
        """The starts and number of bursts, or more starts, if all of them explain what few would leave to memory."""
        several = _robust_starts(scaled, self.penalty * math.log(len(scaled)), self.least_points)
        if len(several) <= max(1, len(starts)):
            return starts, seen
        several, calm, bursts_seen = self._levels(scaled, np.zeros(len(scaled)), _lasting(scaled, several, level))
        first = needed(len(calm), np.array([]))
        # Beside a change that shows by itself memory must not add others. Only in a whole staircase a step is cheaper.
        each = first if starts else _FURTHER * math.log(len(scaled))
        several = _without_weak(calm, several, lambda edges: np.full(len(edges) - 1, each))
        far = np.abs(scaled - levels(scaled, several)) > CLIP
        if len(several) <= max(1, len(starts)) or far.mean() > _MOST_STALLS:
            return starts, seen
        found = Levels(calm, [step(len(calm), start) for start in (*several, *starts)])
        evidence = found.support(range(len(several))) - found.support(range(len(several), len(several) + len(starts)))
        enough = first + each * (len(several) - len(starts) - 1) + (0 if starts else _STAIRCASE)
        return (several, bursts_seen) if evidence >= enough else (starts, seen)

    def _tested(self, scaled: Floats, curve: Floats, calm: Floats) -> tuple[list[int], int]:
        """Starts of levels that neither chance nor memory explains, and the number of bursts among them."""
        starts = _segment_starts(calm, self.penalty * math.log(len(calm)), self.least_points)
        starts = list(_merged(calm, starts, self.max_p))
        starts, calm, seen = self._levels(scaled, curve, starts)

        def enough(edges: list[int]) -> Floats:
            return np.array([needed(len(calm), calm[begin : begin if seen else end]) for begin, end in pairwise(edges)])

        return _without_weak(calm, starts, enough), seen

    def _levels(self, scaled: Floats, curve: Floats, starts: list[int]) -> tuple[list[int], Floats, int]:
        """Starts of levels that chance does not explain, values drawn in about them, and the bursts left out."""
        # About the new levels: in a short history drawn in values make a large step as small as memory.
        calm = about(scaled, curve + levels(scaled - curve, starts))
        starts, calm, seen = _without_bursts(starts, calm)
        return list(_merged(calm, starts, self.max_p)), calm, seen

    def _last_holds(self, scaled: Floats, starts: list[int], level: int, has_bursts: bool) -> bool:
        least = level if has_bursts or starts[-1] < _YOUNG else self.least_points
        return _in_a_row(scaled[starts[-1] :], scaled[[0, *starts][-2] : starts[-1]], has_bursts) >= least


def _first_holds(scaled: Floats, starts: list[int], level: int, has_bursts: bool) -> bool:
    return _in_a_row(scaled[: starts[0]], scaled[starts[0] : [*starts, len(scaled)][1]], has_bursts) >= level


def drawn_in(values: Floats) -> Floats:
    """Deviations from the median in standard deviations of the noise, drawn in to ±3; shape (n,)."""
    noise = noise_of(values)
    return about((values - np.median(values)) / noise, 0.0) if noise > 0 else np.zeros(len(values))


def _cost(scaled: Floats, curve: Floats, starts: list[int]) -> float:
    """What a curve with these levels leaves, and what the levels cost."""
    base = curve + levels(scaled - curve, starts)
    squares, points = float(np.square(about(scaled, base) - base).sum()), len(scaled)
    return points * math.log((squares + 1) / points) + 3 * math.log(points) * len(starts)


def _without_weak(calm: Floats, starts: list[int], enough: Callable[[list[int]], Floats]) -> list[int]:
    """Starts without those whose evidence beside the others is not enough, the weakest first."""
    left = list(starts)
    found = Levels(calm, [step(len(calm), start) for start in starts]) if starts else None
    while found and left:
        spare = found.evidence([starts.index(each) for each in left]) - enough([0, *left])
        weakest = int(np.argmin(spare))
        if spare[weakest] >= 0:
            break
        del left[weakest]
    return left


def _robust_starts(values: Floats, penalty: float, least_points: int) -> list[int]:
    """Starts of levels where no point costs more than one three standard deviations off its level.

    So a stall belongs to no level, wherever the levels lie (Fearnhead, Rigaill: Changepoint detection in the presence
    of outliers, JASA 114, 2019). Levels are those of five points in a row: exact dynamic programming over them.
    """
    possible = np.unique(running_median(values, 2))
    off = np.minimum(np.square(values[:, None] - possible), CLIP**2)
    cost = off[0]
    best = np.empty(len(values), dtype=np.int64)
    jumps = np.empty(off.shape, dtype=bool)
    for index in range(1, len(values)):
        best[index] = cost.argmin()
        dearest = cost[best[index]] + penalty
        np.greater(cost, dearest, out=jumps[index])
        cost = np.minimum(cost, dearest) + off[index]
    at = int(np.argmin(cost))
    starts: list[int] = []
    for index in range(len(values) - 1, 0, -1):
        if jumps[index, at]:
            starts.insert(0, index)
            at = int(best[index])
    edges = [0]
    for start in starts:
        if start - edges[-1] >= least_points and len(values) - start >= least_points:
            edges.append(start)
    return edges[1:]


def _lasting(values: Floats, starts: list[int], level: int) -> list[int]:
    """Starts of levels that last so many points; a shorter one is joined to the nearer of its neighbours."""
    edges = [0, *starts, len(values)]
    while edges[1:-1]:
        short = int(np.argmin(np.diff(edges)))
        if edges[short + 1] - edges[short] >= level:
            break
        steps = np.abs(np.diff([np.median(part) for part in np.split(values, edges[1:-1])]))
        nearest = min((at for at in (short, short + 1) if 0 < at < len(edges) - 1), key=lambda at: steps[at - 1])
        del edges[nearest]
    return edges[1:-1]


def _placed(values: Floats, starts: list[int], least_points: int) -> list[int]:
    """The starts where they leave least, a point that is far off both levels left out: a stall moves no start.

    Only points nearby count: what a drift does elsewhere is no part of the step.
    """
    edges = [0, *starts, len(values)]
    for number in range(1, len(edges) - 1):
        at = edges[number]
        left, right = max(edges[number - 1], at - _NEARBY), min(edges[number + 1], at + _NEARBY)
        part = values[left:right]
        before, after = (np.minimum(np.square(part - np.median(side)), CLIP**2) for side in np.split(part, [at - left]))
        left_over = np.concatenate([[0.0], np.cumsum(before - after)])
        best = least_points + int(np.argmin(left_over[least_points : len(part) - least_points + 1]))
        if left_over[best] < left_over[at - left]:
            edges[number] = left + best
    return edges[1:-1]


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
