"""Student's t distribution, for those who cannot wait for scipy: importing that takes longer than a whole trend."""

from __future__ import annotations

import math
from typing import Final

_PRECISION: Final = 1e-15
_MOST_TERMS: Final = 10_000


def two_sided_p(t: float, degrees: int) -> float:
    """How probable it is to be at least as far from zero as `t`."""
    total = degrees + t * t
    return _incomplete_beta(degrees / total, t * t / total, degrees / 2, 0.5)


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularised incomplete beta function (Abramowitz, Stegun 26.5.8, and 26.5.2 where that is slow).

    `rest` is 1 - x, which has lost its digits where x is almost 1.
    """
    if x == 0 or rest == 0:
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(rest, x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    return math.exp(scale) / (a * _continued_fraction(x, a, b))


def _continued_fraction(x: float, a: float, b: float) -> float:
    """1 + d1/(1 + d2/(1 + ...)) by the method of Lentz (Press et al.: Numerical Recipes, 1992, 5.2 and 6.4)."""
    value = above = 1.0
    below = 0.0
    for term in range(1, _MOST_TERMS):
        m = term // 2
        if term % 2:
            d = -(a + m) * (a + b + m) * x / ((a + term - 1) * (a + term))
        else:
            d = m * (b - m) * x / ((a + term - 1) * (a + term))
        below = 1 / (1 + d * below)
        above = 1 + d / above
        value *= above * below
        if abs(above * below - 1) < _PRECISION:
            break
    return value
