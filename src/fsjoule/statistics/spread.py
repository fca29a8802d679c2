"""Mean and deviation of repetitions, a test of two means, and the share of an event."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from fsjoule.statistics.proportions import clopper_pearson


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
