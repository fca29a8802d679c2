"""How many boots a bisection takes at the very least, whatever its method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

# Error rates of the three phases: a loss at the ends where none is, and none where one is; the same for the candidate;
# and the search's.
_ENDS: Final = (0.005, 0.01)
_CONFIRMED: Final = (0.00125, 0.02)
_SEARCH: Final = 0.005


@dataclass(frozen=True, slots=True)
class Phases:
    """Boots for showing the loss at the ends, for the search, and for confirming what it found."""

    ends: float
    search: float
    confirmation: float

    @property
    def boots(self) -> float:
        return self.ends + self.search + self.confirmation


def three_phases(positions: int, distance: float) -> Phases:
    """Mean boots of the best there could be if levels and noise were known; `distance` is the loss in noises.

    Wald's sequential test of interleaved boots at the ends and at the candidate (Annals of Mathematical Statistics 16,
    1945), and between them Burnashev's bound for a search with feedback (Problems of Information Transmission 12,
    1976).
    """
    bits = math.log2(positions - 1)
    search = (1 - _SEARCH) * bits / capacity(distance) + math.log(1 / _SEARCH) / (distance**2 / 2)
    return Phases(_wald(distance, *_ENDS), search, _wald(distance, *_CONFIRMED))


def capacity(distance: float) -> float:
    """Bits that one boot tells at most of whether its position is good or bad.

    The figures of the two are normal, `distance` standard deviations apart: the capacity of a Gaussian channel with two
    inputs (Cover, Thomas: Elements of Information Theory, 2nd edition 2006, chapter 9).
    """
    z = np.linspace(-8.0, distance + 8.0, 2000)
    good, bad = (np.exp(-np.square(z - at) / 2) / math.sqrt(2 * math.pi) for at in (0.0, distance))
    both = (good + bad) / 2
    told = sum(
        np.where(one > 0, one * np.log2(np.maximum(one, _TINY) / np.maximum(both, _TINY)), 0.0) for one in (good, bad)
    )
    return float(np.sum(told) / 2 * (z[1] - z[0]))


_TINY: Final = 1e-300


def _wald(distance: float, alpha: float, beta: float) -> float:
    """Mean boots of two images in turn until a loss is shown, if there is one."""
    shown = (1 - beta) * math.log((1 - beta) / alpha) + beta * math.log(beta / (1 - alpha))
    return 2 * shown / (distance**2 / 4)
