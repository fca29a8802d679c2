"""The cost of a bisection, before its first boot, and the loss that its budget can find."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.statistics.bisection.limits import three_phases
from fsjoule.statistics.bisection.question import Question

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


def forecast(question: Question, noise: Sequence[float]) -> Forecast:
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
