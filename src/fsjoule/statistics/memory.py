"""How a series moves from night to night without a change: its noise, its memory, its slow drift.

Nights of a lab remember: the room warms up, a card fills. A step must explain the series better than memory does. A
series is a level, a slow curve (none, a line, or three to six cosines), steps and noise. The noise is x + w: x an
autoregression of first order, w without memory, over a grid of both. In it white noise has nearly all weight, so a
series without memory loses little, and one with memory soon outweighs that. The evidence for a step is the logarithm of
the likelihood with it over that without it; a curve costs about two nats per column, as in Schwarz's criterion (Annals
of Statistics 6, 1978). tests/statistics/memory_rates.py simulates the rates that follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.statistics.ratios import CONFIDENCE, Floats

# Median absolute deviation to standard deviation of a normal distribution.
_MAD_TO_SD: Final = 1.4826
# In standard deviations of the noise: farther values are drawn in.
CLIP: Final = 3.0
# No figure is more exact, as a fraction.
_LEAST_NOISE: Final = 1e-4
# Night to night correlation of the part that remembers, and the share of the variance without memory.
_PHI: Final = np.array([0, 0.3, 0.5, 0.7, 0.85, 0.95, 0.7, 0.85, 0.95, 0.98, 0.85, 0.95, 0.98])
_WHITE: Final = np.array([0, 0, 0, 0, 0, 0, 0.4, 0.4, 0.4, 0.4, 0.75, 0.75, 0.75])
_WEIGHT: Final = np.log(np.where(_PHI == 0, 0.995, 0.005 / (len(_PHI) - 1)))
_COSINES: Final = 5
# Columns of a slow curve, and what they cost in nats.
_CURVES: Final = (((), 0.0), ((1,), 2.0), ((1, 2, 3), 6.0), ((1, 2, 3, 4, 5, 6), 12.0))
_FIRST: Final = 2 + _COSINES
# Longer histories are judged by their newest points: memory is shorter.
MOST_POINTS: Final = 512
# A stretch of nights at another level is a burst if it is shorter, and no level; fewer than three are stalls.
LEVEL_NIGHTS: Final = 7
LEAST_POINTS: Final = 3
_AROUND: Final = 12
_FAR: Final = 2.0
_SOON: Final = 10
# Farther from the level than a quiet night in ten thousand.
_OFF: Final = 4.0
# A level of so many nights shows its memory: a correlation with the night before, or with five in sum, above these.
_KNOWN_NIGHTS: Final = 50
_NEXT_NIGHT: Final = 0.2
_FIVE_NIGHTS: Final = 0.5
_WITHOUT_MEMORY: Final = 4.0
_RIDGE: Final = 1e-9
_STEPS: Final = np.linspace(0.1, 60, 600)


@dataclass(frozen=True, slots=True)
class Memory:
    """The movement of a series that is no change. Sizes are fractions, 0.02 is 2 %.

    `noise` is the standard deviation of a night about its level. `nights` of the series tell as much as one independent
    night. `sees` is the smallest step down that would be nominated within ten nights, as a ratio of levels. `drift` is
    the last level over the first one of a slow drift, None without one. `bursts` counts stretches of a few nights that
    left the level and came back. `lately` are newest nights far off the level, which are no change yet.
    """

    noise: float
    nights: float
    sees: float
    drift: float | None = None
    bursts: int = 0
    lately: Lately | None = None


@dataclass(frozen=True, slots=True)
class Lately:
    """The newest nights in a row that all lie far to one side of the level; their median over it is the `ratio`."""

    nights: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Effect:
    """A column's coefficient with its 95 % interval, in the unit of the values; `nights` is the memory."""

    value: float
    low: float
    high: float
    nights: float


def needed(points: int, before: Floats) -> float:
    """The evidence for a nomination, in nats, after a level with the points `before`.

    A short history does not know its memory. A long level whose nights do not remember has shown that they do not:
    there the chance of independent nights counts, which the t test limits.
    """
    return _WITHOUT_MEMORY if _forgets(before) else 10 + 50 / points


def _forgets(level: Floats) -> bool:
    """Whether a level is long enough to show memory and shows none: in correlations with the five nights before."""
    if len(level) < _KNOWN_NIGHTS or bursts(level):
        return False
    off = level - level.mean()
    squares = float(off @ off)
    lags = np.cumsum([float(off[lag:] @ off[:-lag]) for lag in range(1, 6)])
    return squares > 0 and lags[0] < _NEXT_NIGHT * squares and lags[-1] < _FIVE_NIGHTS * squares


def noise_of(values: Floats) -> float:
    """Standard deviation of the noise about levels that sometimes change, from successive differences.

    Where most neighbours are equal, it is what points are off the median of five, but for the sixth that may stall: a
    level step is off none. Figures that are exact but for steps and stalls have the least noise, equal ones have none.
    """
    steps = np.diff(values)
    robust = _MAD_TO_SD * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2)
    if robust == 0 and steps.any():
        off = np.sort(np.abs(values - running_median(values, 2)))
        robust = math.sqrt(float(np.square(off[: len(off) * 5 // 6]).mean()))
    return max(robust, _LEAST_NOISE) if steps.any() else 0.0


def running_median(values: Floats, around: int) -> Floats:
    """The median of each point and of so many on either side, fewer at the ends; shape (n,)."""
    n, width = len(values), 2 * around + 1
    medians = np.array([np.median(values[max(0, i - around) : i + around + 1]) for i in range(min(n, around))])
    if n >= width:
        inner = np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
        medians = np.concatenate([medians, inner])
    return np.concatenate([medians, [np.median(values[i - around :]) for i in range(len(medians), n)]])


def robust_line(values: Floats) -> Floats:
    """A robust line: the median slope of points a quarter of the history or more apart (Theil 1950)."""
    thinned = np.arange(0, len(values), max(1, len(values) // 200))
    first, second = np.triu_indices(len(thinned), max(1, len(thinned) // 4))
    apart = thinned[second] - thinned[first]
    slope = float(np.median((values[thinned[second]] - values[thinned[first]]) / apart))
    sloped = slope * np.arange(len(values))
    return sloped + np.median(values - sloped)


def about(values: Floats, base: Floats | float) -> Floats:
    """Values drawn in to three standard deviations about `base`; all are in units of the noise."""
    return base + np.clip(values - base, -CLIP, CLIP)


def step(points: int, start: int) -> Floats:
    return (np.arange(points) >= start).astype(np.float64)


class Levels:
    """How well columns (steps, or the side of each night) explain a series, under each memory; n points at most 512."""

    def __init__(self, values: Floats, columns: Sequence[Floats]) -> None:
        self._n = n = len(values)
        at = np.arange(n)
        curves = [np.cos(np.pi * k * (at + 0.5) / n) for k in range(2, 2 + _COSINES)]
        slope = (at - (n - 1) / 2) / n
        white = _whitened(np.column_stack([values, np.ones(n), slope, *curves, *columns]))
        self._gram = np.matmul(white.transpose(0, 2, 1), white)
        self._constant = -_log_determinants()[n - 1] / 2

    def evidence(self, columns: Sequence[int], *, strict: bool = False) -> Floats:
        """The evidence for each of these columns beside the others, in nats; shape (columns,).

        `strict` gives every memory the same weight, and the one that explains the series best speaks for no step.
        """
        with_all, without = -math.inf, np.full(len(columns), -math.inf)
        for curve, cost in _CURVES:
            indices = [1, *(1 + k for k in curve), *(1 + _FIRST + each for each in columns)]
            if len(indices) + 3 > self._n:
                break
            inverse, solution, squares = self._fit(indices)
            own = np.arange(len(indices) - len(columns), len(indices))
            lacking = squares[:, None] + solution[:, own] ** 2 / inverse[:, own, own]
            # With a step the line costs one nat more: a drift is the simpler story.
            with_all = max(with_all, float(self._likelihood(squares, strict=strict)) - cost - (len(curve) == 1))
            without = np.maximum(without, self._likelihood(lacking, strict=strict) - cost)
        return with_all - without

    def support(self, columns: Sequence[int]) -> float:
        """How well these columns together explain the series, in nats; of two sets the difference is evidence."""
        best = -math.inf
        for curve, cost in _CURVES:
            indices = [1, *(1 + k for k in curve), *(1 + _FIRST + each for each in columns)]
            if len(indices) + 3 > self._n:
                break
            _, _, squares = self._fit(indices)
            best = max(best, float(self._likelihood(squares, strict=False)) - cost)
        return best

    def drift(self, columns: Sequence[int]) -> tuple[float, float]:
        """The evidence for a line, and its rise over the whole series."""
        indices = [1, *(1 + _FIRST + each for each in columns), 2]
        inverse, solution, squares = self._fit(indices)
        lacking = squares + solution[:, -1] ** 2 / inverse[:, -1, -1]
        best = int(np.argmax(self._each(squares, strict=False)))
        evidence = self._likelihood(squares, strict=False) - self._likelihood(lacking, strict=False)
        return float(evidence), float(solution[best, -1]) * (self._n - 1) / self._n

    def seen(self, columns: Sequence[int], new: int, enough: float) -> float:
        """The smallest size of the step `new` whose evidence would be expected to suffice."""
        without = np.full(len(_STEPS), -math.inf)
        with_it = -math.inf
        for curve, cost in _CURVES:
            indices = [1, *(1 + k for k in curve), *(1 + _FIRST + each for each in (*columns, new))]
            if len(indices) + 3 > self._n:
                break
            inverse, _, squares = self._fit(indices)
            lacking = squares[:, None] + _STEPS**2 / inverse[:, -1, -1][:, None]
            with_it = max(with_it, float(self._likelihood(squares, strict=False)) - cost)
            without = np.maximum(without, self._likelihood(lacking, strict=False) - cost)
        seen = with_it - without >= enough
        return float(_STEPS[int(np.argmax(seen))]) if seen.any() else float(_STEPS[-1])

    def effect(self, columns: Sequence[int], about_column: int) -> Effect:
        """The coefficient of a column, averaged over memories, and how many nights tell as much as one."""
        from scipy.special import stdtrit

        indices = [1, *(1 + _FIRST + each for each in columns)]
        inverse, solution, squares = self._fit(indices)
        place = 1 + list(columns).index(about_column)
        likely = self._each(squares, strict=True)
        weights = np.exp(likely - likely.max())
        weights /= weights.sum()
        degrees = max(1, self._n - len(indices))
        variances = squares / degrees * inverse[:, place, place]
        value = float(weights @ solution[:, place])
        spread = float(weights @ (variances + np.square(solution[:, place] - value)))
        half = float(stdtrit(degrees, (1 + CONFIDENCE) / 2)) * math.sqrt(spread)
        return Effect(value, value - half, value + half, max(1.0, spread / float(variances[0] or 1.0)))

    def _fit(self, indices: Sequence[int]) -> tuple[Floats, Floats, Floats]:
        """Inverse (memories, c, c), coefficients (memories, c) and residual squares (memories,) of least squares."""
        # The least amount keeps columns apart that are one, such as steps at neighbouring points of a short history.
        normal: Floats = self._gram[:, indices][:, :, indices] + _RIDGE * np.eye(len(indices))
        inverse: Floats = np.asarray(np.linalg.inv(normal), dtype=np.float64)
        products = self._gram[:, indices, 0]
        solution: Floats = np.einsum("gij,gj->gi", inverse, products)
        squares: Floats = self._gram[:, 0, 0] - (products * solution).sum(axis=1)
        return inverse, solution, np.maximum(squares, 0.0)

    def _each(self, squares: Floats, *, strict: bool) -> Floats:
        # One night's worth of noise more: no series is calmer than its differences say.
        likely = -self._n / 2 * np.log((squares + 1) / self._n)
        constant = self._constant if strict else self._constant + _WEIGHT
        return likely + constant.reshape(-1, *(1,) * (squares.ndim - 1))

    def _likelihood(self, squares: Floats, *, strict: bool) -> Floats:
        likely = self._each(squares, strict=strict)
        most = likely.max(axis=0)
        return most if strict else most + np.log(np.exp(likely - most).sum(axis=0))


def memory_of(values: Floats, starts: Sequence[int]) -> Memory | None:
    """The memory of a series whose levels start at `starts`; logarithms, shape (n,). None for fewer than six."""
    values, starts = newest(values, starts)
    noise = noise_of(values) if len(values) >= 2 * LEAST_POINTS else 0.0
    if len(values) < 2 * LEAST_POINTS:
        return None
    if noise == 0:
        return Memory(0.0, 1.0, 1.0)
    n, scaled = len(values), values / noise
    calm = about(scaled, levels(scaled, starts))
    late = max(n - _SOON, n // 2)
    late -= late in starts
    columns = [*(step(n, start) for start in starts), step(n, late)]
    found = Levels(calm, columns)
    before = list(range(len(starts)))
    enough = needed(n, calm[starts[-1] if starts else 0 : late])
    slope = robust_line(scaled - levels(scaled, starts))
    steep = abs(slope[-1] - slope[0]) > CLIP
    # About level nights a steep drift would be drawn in, until memory explains it.
    sloping = Levels(about(scaled, levels(scaled, starts) + slope), columns) if steep else found
    sure, rise = sloping.drift(before)
    effect = found.effect([*before, len(starts)], len(starts))
    spread = float(np.median(np.abs(scaled - levels(scaled, starts)))) * _MAD_TO_SD
    return Memory(
        noise=noise * max(spread, 1.0),
        nights=effect.nights,
        sees=math.exp(-noise * (found.seen(before, len(starts), enough) + 1 / math.sqrt(_SOON))),
        drift=math.exp(noise * rise) if sure >= needed(n, np.array([])) else None,
        bursts=bursts(scaled),
        lately=_lately(scaled[starts[-1] if starts else 0 :], noise),
    )


def _lately(level: Floats, noise: float) -> Lately | None:
    """Newest nights far off their level, whose values are in units of the noise; None without."""
    for nights in range(len(level) // 2, 0, -1):
        before, after = np.split(level, [-nights])
        if len(before) < 2 * LEAST_POINTS:
            continue
        middle = float(np.median(before))
        spread = max(1.0, _MAD_TO_SD * float(np.median(np.abs(before - middle))))
        off = (after - middle) / spread
        if float(np.abs(off).min()) > _OFF and abs(int(np.sign(off).sum())) == nights:
            return Lately(nights, math.exp(noise * spread * float(np.median(off))))
    return None


def newest(values: Floats, starts: Sequence[int]) -> tuple[Floats, list[int]]:
    """The newest points, as many as are judged, and the starts among them."""
    cut = max(0, len(values) - MOST_POINTS)
    return values[cut:], [start - cut for start in starts if start > cut]


def levels(values: Floats, starts: Sequence[int]) -> Floats:
    """The median of each level, for each point; shape (n,)."""
    parts = np.split(values, list(starts))
    return np.concatenate([np.full(len(part), np.median(part)) for part in parts])


def bursts(values: Floats) -> int:
    """How many stretches of three to six nights lie far from the nights around them, and are over; units of noise."""
    n = len(values)
    near = running_median(values, _AROUND)
    count = 0
    for sign in (-1, 1):
        edges = np.diff(np.concatenate([[0], (sign * (values - near) > _FAR).astype(np.int64), [0]]))
        begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        count += int(np.sum((ends - begins >= LEAST_POINTS) & (ends - begins < LEVEL_NIGHTS) & (ends < n)))
    return count


@cache
def _filter() -> tuple[Floats, Floats]:
    """Variance and gain of the Kalman filter of x + w after each point, total variance 1; shapes (512, memories)."""
    left = 1 - _WHITE
    variances, gains = np.empty((2, MOST_POINTS, len(_PHI)))
    for at in range(MOST_POINTS):
        variances[at] = left + _WHITE
        gains[at] = left / variances[at]
        left = _PHI**2 * (1 - gains[at]) * left + (1 - _PHI**2) * (1 - _WHITE)
    return variances, gains


@cache
def _log_determinants() -> Floats:
    return np.cumsum(np.log(_filter()[0]), axis=0)


def _whitened(columns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Prediction errors of each column in standard deviations; (n, c) becomes (memories, n, c)."""
    variances, gains = _filter()
    expected = np.zeros((len(_PHI), columns.shape[1]))
    errors = np.empty((len(columns), *expected.shape))
    for at, row in enumerate(columns):
        error = row - expected
        errors[at] = error / np.sqrt(variances[at])[:, None]
        expected = _PHI[:, None] * (expected + gains[at][:, None] * error)
    return errors.transpose(1, 0, 2)
