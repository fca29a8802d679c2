"""Simulated boots: noise, stalls and drift of known size, for measuring what the statistics promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from fsjoule.statistics.figures import Turn, interleaved

Floats = npt.NDArray[np.float64]
Drift = Literal["none", "linear", "walk"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """How boots behave. Sizes are relative: 0.02 is 2 % of the figure.

    A boot stalls with the probability `stalls` and then loses between `stall_from` and `stall_to` of its throughput.
    With linear drift each boot loses `drift_size` against the one before; a walk has steps of that standard deviation.
    With `one_after_the_other` all boots of the baseline run before the first of the candidate.
    """

    noise: float = 0.02
    stalls: float = 0.0
    stall_from: float = 0.05
    stall_to: float = 0.5
    drift: Drift = "none"
    drift_size: float = 0.003
    one_after_the_other: bool = False


PLAIN = Scenario()
STALLS = Scenario(stalls=0.05)


def boots(rng: np.random.Generator, scenario: Scenario, shape: tuple[int, ...]) -> Floats:
    """Logarithms of throughput about a level of 0, without drift."""
    noise = rng.normal(0.0, scenario.noise, shape)
    stalled = rng.random(shape) < scenario.stalls
    return noise + np.where(stalled, np.log1p(-rng.uniform(scenario.stall_from, scenario.stall_to, shape)), 0.0)


def trials(
    rng: np.random.Generator, scenario: Scenario, count: int, pairs: int, *, loss: float = 0.0
) -> tuple[Floats, Floats]:
    """Baseline's and candidate's logarithms, shape (count, pairs) each; the candidate is slower by `loss`."""
    both = boots(rng, scenario, (2, count, pairs))
    drift = _drift(rng, scenario, (count, 2 * pairs))
    at_baseline, at_candidate = _places(rng, scenario, count, pairs)
    baseline = both[0] + np.take_along_axis(drift, at_baseline, axis=1)
    candidate = both[1] + np.take_along_axis(drift, at_candidate, axis=1)
    return baseline, candidate + np.log1p(-loss)


def _drift(rng: np.random.Generator, scenario: Scenario, shape: tuple[int, int]) -> Floats:
    if scenario.drift == "walk":
        return np.cumsum(rng.normal(0.0, scenario.drift_size, shape), axis=1)
    each = scenario.drift_size if scenario.drift == "linear" else 0.0
    return np.broadcast_to(-each * np.arange(shape[1], dtype=np.float64), shape)


def _places(
    rng: np.random.Generator, scenario: Scenario, count: int, pairs: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """When each boot of a side ran, counted in boots; what `interleaved` says, or one side after the other."""
    if scenario.one_after_the_other:
        first = np.broadcast_to(np.arange(pairs), (count, pairs))
        return first, first + pairs
    seeds = rng.integers(0, 2**31, count)
    second = np.array(
        [[order[0] is Turn.CANDIDATE for order in interleaved(pairs, seed=int(seed))] for seed in seeds], dtype=np.int64
    )
    first = 2 * np.arange(pairs)
    return first + second, first + 1 - second
