"""The cost of a bisection, before its first boot, and the loss that its budget can find."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.statistics.bisection.question import BisectionQuestion

# Error rates of the three phases: a loss at the ends where none is, and none where one is; the same for the candidate;
# and the search's.
_ENDS: Final = (0.005, 0.01)
_CONFIRMED: Final = (0.00125, 0.02)
_SEARCH: Final = 0.005


@dataclass(frozen=True, slots=True)
class PhaseBoots:
    """Boots for showing the loss at the ends, for the search, and for confirming what it found."""

    ends: float
    search: float
    confirmation: float

    @property
    def boots(self) -> float:
        return self.ends + self.search + self.confirmation


def three_phases(positions: int, distance: float) -> PhaseBoots:
    """Mean boots of the best there could be if levels and noise were known; `distance` is the loss in noises.

    Wald's sequential test of interleaved boots at the ends and at the candidate (Annals of Mathematical Statistics 16,
    1945), and between them Burnashev's bound for a search with feedback (Problems of Information Transmission 12,
    1976).
    """
    bits = math.log2(positions - 1)
    search = (1 - _SEARCH) * bits / capacity(distance) + math.log(1 / _SEARCH) / (distance**2 / 2)
    return PhaseBoots(_wald(distance, *_ENDS), search, _wald(distance, *_CONFIRMED))


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


# However plain the loss: three boots of each end, two of the culprit and two of its parent.
_LEAST_ENDS: Final = 6.0
_LEAST_CONFIRMATION: Final = 4.0
# The cost of unknown levels, noise and drift: boots above the fewest possible, against the limit; from simulation.
_OVERHEAD: Final = 1.2
# Bounds of the interval, as shares of the mean above the fewest boots there can be; from simulation.
_LOW, _HIGH, _MORE = 0.1, 2.0, 2.0
# How many more positions than halving needs are built as the noise grows; from simulation.
_DETOURS: Final = 1.35
_DETOURS_BY_DISTANCE: Final = -1.6
# A loss of so many noises is plain; looking for a larger one saves nothing.
_PLAIN: Final = 30.0
_HALVINGS: Final = 40


@dataclass(frozen=True, slots=True)
class Forecast:
    """Boots on average, between which numbers they lie with 80 %, and how many positions are built.

    They are those of a loss of just the smallest size that matters; a larger one takes fewer. `effects` are the
    smallest losses that the budget finds with 90 %, infinite if it finds none.
    """

    boots: float
    low: float
    high: float
    builds: float
    effects: tuple[float, ...]
    within_budget: bool


def forecast(question: BisectionQuestion, noise: Sequence[float]) -> Forecast:
    """The cost of that question if boots have that relative standard deviation, one for each metric.

    The metric whose smallest loss stands out most from its noise decides. Raises ValueError without any noise above
    zero.
    """
    distances = [effect / sd for effect, sd in zip(question.effects, noise, strict=True) if sd > 0]
    if not distances:
        raise ValueError("a forecast needs the noise of a metric")
    distance = max(distances)
    boots, low, high = _boots(question.positions, distance)
    factor = _smallest(question.positions, question.budget) / distance
    halvings = math.log2(max(2, question.positions - 1))
    detours = _DETOURS * distance**_DETOURS_BY_DISTANCE
    return Forecast(
        boots=boots,
        low=low,
        high=high,
        builds=min(float(question.positions), 2 + halvings * (1 + detours)),
        effects=tuple(effect * factor for effect in question.effects),
        within_budget=high <= question.budget,
    )


def _boots(positions: int, distance: float) -> tuple[float, float, float]:
    """Mean and interval: the limit, and what simulations take beyond it."""
    phases = three_phases(max(3, positions), distance)
    fewest = _LEAST_ENDS + math.log2(max(2, positions - 1)) + _LEAST_CONFIRMATION
    limit = max(_LEAST_ENDS, phases.ends) + phases.search + max(_LEAST_CONFIRMATION, phases.confirmation)
    mean = fewest + _OVERHEAD * (limit - fewest)
    return mean, fewest + _LOW * (mean - fewest), fewest + _HIGH * (mean - fewest) + _MORE


def _smallest(positions: int, budget: int) -> float:
    """The smallest loss in noises whose interval ends within the budget; infinite if there is none."""
    if _boots(positions, _PLAIN)[2] > budget:
        return math.inf
    low, high = 0.0, _PLAIN
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _boots(positions, middle)[2] <= budget else (middle, high)
    return high
