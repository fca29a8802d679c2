"""Whether new figures, of which less is better, are above a level: that of earlier boots, or a budget that is exact.

Figures are logarithms, normal with an unknown standard deviation s, one of each boot. t is how much the new ones are
above the level. With S(t), the sum of squares about their means if t is right, and v degrees of freedom

    log L(t) = -(v + 4)/2 * log(4 s0^2 + S(t))

which counts a smallest noise s0 as much as four boots: two or three that agree by chance look like no noise. The mean
of the level is integrated out with a flat prior, which costs a degree of freedom. Two quantities are followed:

    above      mean of L over t from 0.6 of the effect   /  largest L over t <= 0
    not above  mean of L over t <= 0                     /  largest L over t of at least the effect

Each is an e-value: it may be looked at after each new boot (Ville 1939; Ramdas, Gruenwald, Vovk, Shafer: Game-theoretic
statistics and safe anytime-valid inference, 2023). tests/statistics/joules_rates.py simulates the rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import Floats

_PRIOR_BOOTS: Final = 4.0
_STEP: Final = 1.15
_LARGEST: Final = math.log(1000)
# Of the weights of effects: half is the smallest one's, for that is the one that must be found.
_OF_SMALLEST: Final = 0.5
_SD_OF_MAD: Final = 1.4826  # of a normal distribution
_OUTLIER: Final = 4.0
# Of the effect: a rise of the whole effect whose one boot is low must be found, too.
_FOUND_FROM: Final = 0.6


@dataclass(frozen=True, slots=True)
class LevelRule:
    """`effect` is a fraction of the level: it is the smallest rise that must be found.

    `alpha` bounds the chance of "above" without a rise, `beta` that of "not above" with a rise of the effect.
    `least_noise` is the least relative standard deviation of a boot.
    """

    effect: float
    alpha: float = 0.01
    beta: float = 0.01
    least_noise: float = 0.003


@dataclass(frozen=True, slots=True)
class LevelState:
    """What is known: REGRESSED (above), NOT_REGRESSED or UNDECIDED; `ratio` is the new figures' over the level."""

    outcome: Outcome
    ratio: float
    above: float
    not_above: float


def against_boots(earlier: Sequence[float], new: Sequence[float], rule: LevelRule) -> LevelState:
    """New figures against those of earlier boots, all above 0, one of each boot; neither may be empty.

    A boot that stalled must not make every later one unsure: earlier figures that are more than four standard
    deviations off their median, by their median deviation, are left out.
    """
    level, fresh = np.log(np.asarray(earlier, dtype=np.float64)), np.log(np.asarray(new, dtype=np.float64))
    middle = float(np.median(level))
    spread = max(_SD_OF_MAD * float(np.median(np.abs(level - middle))), rule.least_noise)
    level = level[np.abs(level - middle) <= _OUTLIER * spread]
    n, m = len(level), len(fresh)
    squares = float(np.square(level - level.mean()).sum() + np.square(fresh - fresh.mean()).sum())
    return _judged(float(fresh.mean() - level.mean()), n * m / (n + m), squares, n + m - 1, rule)


def against_budget(new: Sequence[float], budget: float, rule: LevelRule) -> LevelState:
    """New figures, all above 0, against an exact level."""
    fresh = np.log(np.asarray(new, dtype=np.float64))
    squares = float(np.square(fresh - fresh.mean()).sum())
    return _judged(float(fresh.mean()) - math.log(budget), float(len(fresh)), squares, len(fresh), rule)


def _judged(rise: float, weight: float, squares: float, degrees: int, rule: LevelRule) -> LevelState:
    prior, half = _PRIOR_BOOTS * rule.least_noise**2, -(degrees + _PRIOR_BOOTS) / 2
    smallest = math.log1p(rule.effect)

    def likelihood(effects: Floats) -> Floats:
        return np.asarray(half * np.log(prior + squares + weight * np.square(rise - effects)))

    first = _FOUND_FROM * smallest
    grid: Floats = first * _STEP ** np.arange(math.ceil(math.log(_LARGEST / first, _STEP)) + 1, dtype=np.float64)
    rises = likelihood(grid)
    none = likelihood(np.concatenate([[0.0], -grid]))
    above = _mean(rises) - float(likelihood(np.array(min(rise, 0.0))))
    not_above = _mean(none) - float(likelihood(np.array(max(rise, smallest))))
    outcome = Outcome.UNDECIDED
    if above >= -math.log(rule.alpha):
        outcome = Outcome.REGRESSED
    elif not_above >= -math.log(rule.beta):
        outcome = Outcome.NOT_REGRESSED
    return LevelState(outcome, math.exp(rise), above, not_above)


def _mean(likelihoods: Floats) -> float:
    """The logarithm of a weighted mean, whose first term is the smallest effect's."""
    rest = (1 - _OF_SMALLEST) / (len(likelihoods) - 1)
    weights = np.concatenate([[_OF_SMALLEST], np.full(len(likelihoods) - 1, rest)])
    largest = float(likelihoods.max())
    return largest + math.log(float(weights @ np.exp(likelihoods - largest)))
