"""A mean with its 95 % interval: of measured figures, and of losses that have a smallest and a largest value."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fsjoule.statistics.spread import DEFAULT_CONFIDENCE

_STEPS = 80  # of a bisection, each of which halves the interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `n` boots with its interval.

    One boot shows no spread: its interval has only the instrument's uncertainty, and it is `unknown` without one.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def unknown(self) -> bool:
        return self.n == 1 and self.low == self.high

    def mapped(self, function: Callable[[float], float]) -> Estimate:
        """The estimate of a monotonic function of the figure."""
        low, high = sorted((function(self.low), function(self.high)))
        return Estimate(function(self.value), low, high, self.n)


def estimate_of(
    figures: Sequence[float], instrument: float = 0.0, confidence: float = DEFAULT_CONFIDENCE
) -> Estimate | None:
    """The mean of figures, one per boot, all at least zero; None without any.

    `instrument` is the standard uncertainty that all figures share (k=1, in their unit), so that no number of boots
    makes it smaller. Both parts are added in quadrature, and the coverage factor is Student's, with effective degrees
    of freedom by Welch and Satterthwaite (JCGM 100:2008, 4.2.3, G.4.1). No interval begins below zero.
    """
    from scipy.special import ndtri, stdtrit

    if not figures:
        return None
    mean, n = statistics.fmean(figures), len(figures)
    of_boots = statistics.stdev(figures) / math.sqrt(n) if n > 1 else 0.0
    combined = math.hypot(of_boots, instrument)
    upper = (1 + confidence) / 2
    # Without a spread of boots there is only the instrument, whose degrees of freedom are not limited.
    factor = stdtrit((n - 1) * (combined / of_boots) ** 4, upper) if of_boots else ndtri(upper)
    half = float(factor) * combined
    return Estimate(mean, max(0.0, mean - half), mean + half, n)


def bounded_mean(figures: Sequence[float], largest: float, confidence: float = DEFAULT_CONFIDENCE) -> Estimate | None:
    """The mean of independent figures between 0 and `largest`; None without any.

    The interval has all means that Hoeffding's inequality does not exclude (JASA 58, 1963, theorem 1): it holds for any
    distribution between the bounds, and for any number of figures. If all figures are 0 or all are `largest`, it is
    that of Clopper and Pearson for no failure, or only failures.
    """
    if not figures:
        return None
    n = len(figures)
    if largest <= 0:
        return Estimate(0.0, 0.0, 0.0, n)
    mean = min(1.0, statistics.fmean(figures) / largest)
    allowed = math.log(2 / (1 - confidence)) / n
    low = _bound(mean, 0.0, allowed) if mean > 0 else 0.0
    high = _bound(mean, 1.0, allowed) if mean < 1 else 1.0
    return Estimate(largest * mean, largest * low, largest * high, n)


def _bound(mean: float, end: float, allowed: float) -> float:
    """The mean nearest to `end` whose divergence from the observed `mean` is `allowed`."""
    inside, outside = mean, end
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        if _divergence(mean, middle) <= allowed:
            inside = middle
        else:
            outside = middle
    return inside


def _divergence(observed: float, expected: float) -> float:
    """Kullback and Leibler's divergence of two coins."""
    if not 0 < expected < 1:
        return 0.0 if observed == expected else math.inf
    heads = observed * math.log(observed / expected) if observed else 0.0
    tails = (1 - observed) * math.log((1 - observed) / (1 - expected)) if observed < 1 else 0.0
    return heads + tails
