"""Mean and deviation of repetitions, a test of two means, and the rate of an event."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import ConfigError

DEFAULT_CONFIDENCE: Final = 0.95


def clopper_pearson(failures: int, n: int, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
    """The interval of the rate of failures, from `failures` in `n` independent trials.

    Returns its lower and upper end, between 0 and 1. The exact interval (Clopper, Pearson: Biometrika 26, 1934) covers
    the rate at least with probability `confidence`, also if no trial or every trial failed: 0 of 50 means that the rate
    is below 7.1 %, not that it is zero. Without a trial it is (0, 1).
    Raises ConfigError for more failures than trials, or a confidence that is not between 0 and 1.
    """
    from scipy.special import betaincinv

    if not 0 <= failures <= n:
        raise ConfigError(f"{failures} failures of {n} trials: the number must be between 0 and the number of trials")
    if not 0 < confidence < 1:
        raise ConfigError(f"a confidence of {confidence:g} is not between 0 and 1", hint="0.95 is usual")
    outside = (1 - confidence) / 2
    low = float(betaincinv(failures, n - failures + 1, outside)) if failures else 0.0
    high = float(betaincinv(failures + 1, n - failures, 1 - outside)) if failures < n else 1.0
    return low, high


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation of `n` repetitions; `sd` is None for one repetition."""

    n: int
    mean: float
    sd: float | None


@dataclass(frozen=True, slots=True)
class Proportion:
    """An event that happened `count` times in `n` trials, `n` > 0."""

    count: int
    n: int

    @property
    def share(self) -> float:
        return self.count / self.n

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share (Clopper, Pearson)."""
        return clopper_pearson(self.count, self.n)


def spread_of(figures: Iterable[float | None]) -> Spread | None:
    """The spread of the present figures; None without any."""
    present = [figure for figure in figures if figure is not None]
    if not present:
        return None
    return Spread(len(present), statistics.fmean(present), statistics.stdev(present) if len(present) > 1 else None)


def p_not_above(one: Spread, other: Spread) -> float | None:
    """The probability of such figures if the mean of `one` is not above the mean of `other`; None without a deviation.

    Welch's t test, one-sided, with degrees of freedom rounded down (Welch: The generalization of "Student's" problem
    when several different population variances are involved, 1947). Without noise any difference counts.
    """
    if one.sd is None or other.sd is None:
        return None
    squares = one.sd**2 / one.n, other.sd**2 / other.n
    total = sum(squares)
    difference = one.mean - other.mean
    if total == 0:
        return 0.0 if difference > 0 else 1.0
    # Shares of the total, so that small figures do not vanish when squared.
    shares = [square / total for square in squares]
    degrees = 1 / (shares[0] ** 2 / (one.n - 1) + shares[1] ** 2 / (other.n - 1))
    from scipy.special import stdtr

    return float(stdtr(max(1, math.floor(degrees + 1e-9)), -difference / math.sqrt(total)))
