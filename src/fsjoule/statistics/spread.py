"""Repetitions as mean and deviation, whether two means are told apart, and how often something happened."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from fsjoule.statistics.proportions import clopper_pearson


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation of `n` repetitions; one repetition has no deviation."""

    n: int
    mean: float
    sd: float | None


@dataclass(frozen=True, slots=True)
class Proportion:
    """It happened `count` times in `n` trials, at least one."""

    count: int
    n: int

    @property
    def share(self) -> float:
        return self.count / self.n

    def interval(self) -> tuple[float, float]:
        """Between what and what the share may be (Clopper, Pearson; 95 %)."""
        return clopper_pearson(self.count, self.n)


def spread_of(figures: Iterable[float | None]) -> Spread | None:
    """Over the figures that are there; None without any."""
    present = [figure for figure in figures if figure is not None]
    if not present:
        return None
    return Spread(len(present), statistics.fmean(present), statistics.stdev(present) if len(present) > 1 else None)


def p_not_above(one: Spread, other: Spread) -> float | None:
    """How probable such figures are if the mean of `one` is not above that of `other`; None without a deviation.

    Welch's t test, one-sided, its degrees of freedom rounded down (Welch: The generalization of "Student's" problem
    when several different population variances are involved, 1947). Figures without any noise are told apart by
    whatever they differ.
    """
    if one.sd is None or other.sd is None:
        return None
    squares = one.sd**2 / one.n, other.sd**2 / other.n
    total = sum(squares)
    difference = one.mean - other.mean
    if total == 0:
        return 0.0 if difference > 0 else 1.0
    # Each square's share of the total, so that small figures do not vanish when they are squared.
    shares = [square / total for square in squares]
    degrees = 1 / (shares[0] ** 2 / (one.n - 1) + shares[1] ** 2 / (other.n - 1))
    from scipy.special import stdtr

    return float(stdtr(max(1, math.floor(degrees + 1e-9)), -difference / math.sqrt(total)))
