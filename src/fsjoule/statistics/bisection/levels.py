"""One metric's likelihood for each stretch of positions in which the first bad one may lie.

A boot's figure is level + slope x time + loss (at the first bad position and after it) + noise. Level and slope belong
to the board; the level also walks. Level and loss have flat priors, slope and walk are small against the noise, whose
standard deviation is unknown (normal and inverse gamma: West, Harrison, Bayesian Forecasting and Dynamic Models, 2nd
edition 1997, chapter 4). So all of them are integrated out by a Kalman filter, one per stretch between two measured
positions, as all first bad positions in it explain all boots equally well.

With a small probability a boot stalls: its figure then may be anything and says nothing. Each filter therefore splits
at each boot into one in which it stalled and one in which it did not; the most probable few are followed (a Gaussian
sum: Alspach, Sorenson, IEEE Trans. Automatic Control 17, 1972). That bounds the influence of any boot, also of the
first.
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.statistics.evidence import STALL_PROBABILITY, KnownNoise
from fsjoule.statistics.ratios import Floats

# How a board may drift: standard deviation of its slope per boot and of its walk's step, in noises, and how probable
# that is beforehand.
_SLOPE: Final[Floats] = np.array([0.002, 0.2, 0.05])
_WALK: Final[Floats] = np.array([0.0, 0.0, 0.15])
DRIFT_ODDS: Final[Floats] = np.log([0.7, 0.15, 0.15])
CALM: Final = DRIFT_ODDS[:1]
# Variance of what is not known at all, in squared noises; a prediction this uncertain is no prediction.
_FLAT: Final = 1e7
_NO_PREDICTION: Final = 1e5
_LEAST_NOISE: Final = 1e-5
# So many combinations of stalled boots are followed in each filter.
_BRANCHES: Final = 8
# Logarithm of the density of a figure that may be anything: even over one unit of logarithms.
_ANYTHING: Final = 0.0
_LOSS, _LEVEL, _SLOPES = 0, 1, 2  # where the state has the loss, and the first board's level and slope

_Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Clock:
    """A board's first and last boot, by their numbers."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """Mean and variance of the next boot's figure by stretch, shape (stretches,), if its position is good, or bad."""

    good: Floats
    good_variance: Floats
    bad: Floats
    bad_variance: Floats


@dataclass(frozen=True, slots=True, eq=False)
class LevelFilters:
    """Filters after some boots.

    Axes are stretches, kinds of drift, branches. Stretch k holds the first bad positions c with
    edges[k-1] < c <= edges[k]; the last one those beyond all edges, for whom no boot was bad: it is also what `no
    change` says. `weight` is the logarithm of likelihood and prior odds, `mean` and `cov` (in squared noises) belong to
    the state, `squares` and `degrees` to the noise: its variance is about squares / degrees.
    """

    edges: tuple[int, ...]
    boards: dict[str, _Clock]
    weight: Floats
    mean: Floats
    cov: Floats
    squares: Floats
    degrees: _Whole

    @classmethod
    def start(cls, noise: KnownNoise, drift_odds: Floats = DRIFT_ODDS) -> LevelFilters:
        """Before the first boot; `noise` and `drift_odds` are what is known of noise and drift."""
        degrees = max(1, int(noise.degrees))
        shape = (1, len(drift_odds), _BRANCHES)
        weight = np.full(shape, -np.inf)
        weight[0, :, 0] = drift_odds
        cov = np.zeros((*shape, 1, 1))
        cov[...] = _FLAT
        return cls(
            edges=(),
            boards={},
            weight=weight,
            mean=np.zeros((*shape, 1)),
            cov=cov,
            squares=np.full(shape, degrees * max(noise.relative_sd, _LEAST_NOISE) ** 2),
            degrees=np.full(shape, degrees, dtype=np.int64),
        )

    def stretch(self, position: int) -> int:
        """In which stretch that first bad position lies."""
        return bisect.bisect_left(self.edges, position)

    def expected(self) -> Expected:
        """The forecast figure of the next boot of the board that booted last, by stretch."""
        board, clock = max(self.boards.items(), key=lambda item: item[1].last)
        place = 2 * list(self.boards).index(board)
        level, slope, time = place + _LEVEL, place + _SLOPES, float(clock.last + 1 - clock.first)
        state = np.zeros(self.mean.shape[-1])
        state[level], state[slope] = 1.0, time
        share = np.exp(self.weight - np.max(self.weight, axis=(1, 2), keepdims=True))
        share /= share.sum(axis=(1, 2), keepdims=True)
        noise = self.squares / self.degrees
        parts: list[Floats] = []
        for loss in (0.0, 1.0):
            state[_LOSS] = loss
            mean = self.mean @ state
            variance = noise * (1.0 + (self.cov @ state) @ state)
            middle = (share * mean).sum(axis=(1, 2))
            parts += [middle, (share * (variance + np.square(mean - middle[:, None, None]))).sum(axis=(1, 2))]
        return Expected(*parts)

    def after(self, position: int, number: int, board: str, figure: float) -> LevelFilters:
        """One boot later. A figure that is NaN only divides the stretches."""
        if math.isnan(figure):
            return _with_board(self.parted(position), board, number)
        return _seen(_with_board(self.parted(position), board, number), position, number, board, figure)

    def parted(self, position: int) -> LevelFilters:
        """With that position as an edge, so that all of a stretch agree about it."""
        at = self.stretch(position)
        if at < len(self.edges) and self.edges[at] == position:
            return self
        rows = np.insert(np.arange(len(self.edges) + 1), at, at)
        return replace(
            self,
            edges=(*self.edges[:at], position, *self.edges[at:]),
            weight=self.weight[rows],
            mean=self.mean[rows],
            cov=self.cov[rows],
            squares=self.squares[rows],
            degrees=self.degrees[rows],
        )


def _with_board(levels: LevelFilters, board: str, number: int) -> LevelFilters:
    """With a state for that board."""
    if board in levels.boards:
        return levels
    size = levels.mean.shape[-1]
    mean = np.concatenate([levels.mean, np.zeros((*levels.weight.shape, 2))], axis=-1)
    cov = np.zeros((*levels.weight.shape, size + 2, size + 2))
    cov[..., :size, :size] = levels.cov
    cov[..., size, size] = _FLAT
    cov[..., size + 1, size + 1] = np.square(_SLOPE[: levels.weight.shape[1]])[:, None]
    return replace(levels, boards={**levels.boards, board: _Clock(number, number)}, mean=mean, cov=cov)


def _seen(levels: LevelFilters, position: int, number: int, board: str, figure: float) -> LevelFilters:
    clock = levels.boards[board]
    place = 2 * list(levels.boards).index(board)
    level, slope, time = place + _LEVEL, place + _SLOPES, float(number - clock.first)
    is_bad = (np.arange(len(levels.edges) + 1) <= bisect.bisect_left(levels.edges, position)).astype(np.float64)
    bad = is_bad[:, None, None]

    prior = levels.cov.copy()
    prior[..., level, level] += (np.square(_WALK[: levels.weight.shape[1]]) * max(0, number - clock.last))[:, None]
    towards = prior[..., level] + time * prior[..., slope] + bad[..., None] * prior[..., _LOSS]
    spread = towards[..., level] + time * towards[..., slope] + bad * towards[..., _LOSS] + 1.0
    error = figure - levels.mean[..., level] - time * levels.mean[..., slope] - bad * levels.mean[..., _LOSS]

    predicted = spread < _NO_PREDICTION
    distance = np.where(predicted, np.square(error) / spread, 0.0)
    density = np.where(
        predicted,
        _STUDENT[levels.degrees]
        - np.log(levels.squares * spread) / 2
        - (levels.degrees + 1) / 2 * np.log1p(distance / levels.squares),
        _ANYTHING,
    )
    gain = towards / spread[..., None]
    calm = (
        levels.weight + density + math.log1p(-STALL_PROBABILITY),
        levels.mean + gain * error[..., None],
        prior - gain[..., :, None] * towards[..., None, :],
        levels.squares + distance,
        levels.degrees + predicted,
    )
    stalled = (
        levels.weight + _ANYTHING + math.log(STALL_PROBABILITY), levels.mean, prior, levels.squares, levels.degrees
    )  # fmt: skip
    weight, mean, cov, squares, degrees = (np.concatenate(both, axis=2) for both in zip(calm, stalled, strict=True))
    kept = np.argsort(-weight, axis=2, kind="stable")[..., :_BRANCHES]
    stretches, drifts = np.ogrid[: kept.shape[0], : kept.shape[1]]
    best = (stretches[..., None], drifts[..., None], kept)
    return replace(
        levels,
        boards={**levels.boards, board: replace(clock, last=number)},
        weight=weight[best],
        mean=mean[best],
        cov=cov[best],
        squares=squares[best],
        degrees=degrees[best],
    )


def _student(most: int) -> Floats:
    """Logarithm of the constant of Student's density, by degrees of freedom, without its scale."""
    halves = [math.lgamma(n / 2) for n in range(most + 2)[1:]]
    return np.array([0.0, *(b - a - math.log(math.pi) / 2 for a, b in itertools.pairwise(halves))])


_STUDENT: Final = _student(20_000)
