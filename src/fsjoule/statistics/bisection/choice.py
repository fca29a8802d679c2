"""Which position tells most."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.statistics.bisection.levels import Expected
from fsjoule.statistics.ratios import Floats

# A position that has been built already is taken if it tells nearly as much as the best.
_NEARLY: Final = 0.95
# Positions that tell as much but for this share are alike.
_ALIKE: Final = 0.99


def telling(first_bad: Floats, otherwise: float, rows: npt.NDArray[np.int64], expected: Expected) -> Floats:
    """How much a boot of each position would tell, in bits, shape (positions,).

    Every hypothesis expects a figure of a position. A boot tells the more, the further these lie apart against the
    variance that each of them allows: 1/2 log2(1 + variance between / variance within), the mutual information if both
    were normal. What a level is not known for is part of the variance within, so that an end is booted when it is its
    level that one has to know. `rows` has the stretch of each first bad position, `otherwise` the probability of none.
    """
    bad, good = expected.bad[rows], expected.good[rows]
    none = expected.good[-1]
    mean = _split(first_bad, bad, good) + otherwise * none
    square = _split(first_bad, np.square(bad), np.square(good)) + otherwise * none**2
    within = _split(first_bad, expected.bad_variance[rows], expected.good_variance[rows])
    within += otherwise * expected.good_variance[-1]
    return np.log2(1 + np.maximum(square - np.square(mean), 0.0) / within) / 2


def _split(first_bad: Floats, if_bad: Floats, if_good: Floats) -> Floats:
    """Mean over hypotheses, by position: the first value where it is bad (first bad position at or before it)."""
    good = first_bad * if_good
    return np.cumsum(first_bad * if_bad) + good.sum() - np.cumsum(good)


def most_telling(bits: Floats, testable: npt.NDArray[np.bool_], built: Collection[int]) -> int:
    """The position to boot; `bits` has what each would tell.

    Among positions that tell alike it is the one that the largest power of two divides. So noise seldom moves the
    choice to a neighbour, and what was built or booted ahead is the position that is asked for.
    """
    told = np.where(testable, bits, -1.0)
    known = [position for position in built if told[position] >= _NEARLY * told.max()]
    if known:
        return max(known, key=lambda position: (told[position], -position))
    alike = np.flatnonzero(told >= _ALIKE * told.max()).tolist()
    return max(alike, key=lambda position: (position & -position, told[position]))


def hypothetical(
    first_bad: Floats, otherwise: float, position: int, distance: float, *, bad: bool
) -> tuple[Floats, float]:
    """`first_bad` and `otherwise` after a boot of that position shows a typical good, or bad, figure.

    These lie `distance` standard deviations apart.
    """
    favour = math.exp(-(min(distance, 30.0) ** 2) / 2)
    weights = first_bad.copy()
    if bad:
        weights[position + 1 :] *= favour
        otherwise *= favour
    else:
        weights[: position + 1] *= favour
    total = weights.sum() + otherwise
    return weights / total, otherwise / total
