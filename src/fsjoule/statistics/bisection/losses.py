"""How large a loss may be beforehand, and what boots say of its size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.statistics.bisection.levels import LevelFilters
from fsjoule.statistics.ratios import Floats

# Multiples of the smallest loss that matters between which a loss is equally probable, and how probable each range is.
_BOUNDS: Final[Floats] = np.array([0.75, 1.4, 2.8, 6.0])
_LARGEST: Final = 3.0  # a figure twenty times as large, in logarithms
_CHANCES: Final[Floats] = np.array([0.5, 0.25, 0.15, 0.1])
_LEAST: Final = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Likelihoods:
    """Logarithms of one metric's likelihood: a loss or a gain from each stretch on, shape (stretches,), or neither."""

    loss: Floats
    gain: Floats
    none: float


@dataclass(frozen=True, slots=True)
class LossEstimate:
    """A loss in logarithms with the bounds of its 95 % interval; and the standard deviation of a boot."""

    size: float
    low: float
    high: float
    noise: float


def likelihoods(levels: LevelFilters, smallest: float, expected: LossEstimate | None = None) -> Likelihoods:
    """The evidence of all boots for losses (and gains) of about `smallest` or more, or of a size that others expect."""
    flat = np.logaddexp.reduce(levels.weight, axis=(1, 2))
    bounds = np.append(_BOUNDS * smallest, max(_LARGEST, 12 * smallest))
    chances = _CHANCES / np.diff(bounds)
    loss, gain = flat.copy(), flat.copy()
    for to, side in ((loss, bounds), (gain, -bounds)):
        inside = np.log(np.maximum(_inside(levels, side) @ chances, _LEAST))
        to[:-1] = np.logaddexp.reduce(levels.weight[:-1] + inside, axis=(1, 2))
    if expected is not None and expected.high > max(expected.low, 0.0):
        bounds = np.array([max(expected.low, 0.0), expected.high])
        inside = np.log(np.maximum(_inside(levels, bounds)[..., 0] / np.diff(bounds), _LEAST))
        as_expected = np.logaddexp.reduce(levels.weight[:-1] + inside, axis=(1, 2))
        loss[:-1] = np.logaddexp(loss[:-1], as_expected) - math.log(2)
    return Likelihoods(loss, gain, float(flat[-1]))


def loss_at(levels: LevelFilters, stretch: int) -> LossEstimate:
    """The loss from that stretch on, as the most probable filter has it."""
    from scipy.special import stdtrit

    walk, branch = np.unravel_index(np.argmax(levels.weight[stretch]), levels.weight[stretch].shape)
    at = (stretch, walk, branch)
    degrees = int(levels.degrees[at])
    noise = math.sqrt(levels.squares[at] / degrees)
    size = float(levels.mean[at][0])
    half = float(stdtrit(degrees, 0.975)) * noise * math.sqrt(levels.cov[at][0, 0])
    return LossEstimate(size, size - half, size + half, noise)


def _inside(levels: LevelFilters, bounds: Floats) -> Floats:
    """How probable the loss lies between neighbouring bounds with a flat prior, shape (stretches - 1, ..., ranges)."""
    from scipy.special import stdtr

    degrees = levels.degrees[:-1]
    scale = np.sqrt(levels.cov[:-1, ..., 0, 0] * levels.squares[:-1] / degrees)
    z = (bounds - levels.mean[:-1, ..., :1]) / scale[..., None]
    tail = stdtr(degrees[..., None], -np.abs(z))  # of the nearer side, so that small differences keep their digits
    near, far = tail[..., :-1], tail[..., 1:]
    same_side = np.sign(z[..., :-1]) == np.sign(z[..., 1:])
    return np.where(same_side, np.abs(near - far), 1.0 - near - far)
