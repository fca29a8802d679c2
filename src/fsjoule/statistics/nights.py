"""All nights before against all nights after, by a rule that holds for nights with memory.

The likelihood with a difference of the two sides, over the largest without one under any memory, drift or slow curve
(`statistics.memory`). It bounds an e-value, which pays half of ln n for the size of the difference, and ln n for the
place of a change that was searched for. Nothing is assumed of boots: a night counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.statistics.memory import LEVEL_NIGHTS, MOST_POINTS, Levels, about, noise_of, step
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import Floats, Interval

# Asked after each night, a hundredth let 1.5 % of the series with the longest memory be decided falsely.
_ALPHA: Final = 0.004
# Runs of each side, without which neither the level of a run nor memory is known.
LEAST_RUNS: Final = 4
_LEAST_NOISE: Final = 1e-4
_FITTED: Final = 4


@dataclass(frozen=True, slots=True)
class NightsVerdict:
    """What the nights themselves say of a change: regressed, improved, or undecided with its `reason`.

    `ratio` is the geometric mean of the nights after over that of the nights before, `interval` its 95 % interval with
    the memory of the series in it, None with too few nights. `nights` counts both sides. `more` forecasts the further
    nights that decide it: 0 if decided, None if nights alone will not.
    """

    outcome: Outcome
    ratio: float
    interval: Interval | None
    nights: tuple[int, int]
    more: int | None = None
    reason: str = ""

    @property
    def decided(self) -> bool:
        return self.outcome is not Outcome.UNDECIDED


@dataclass(frozen=True, slots=True)
class SidesEvidence:
    """The evidence that two sides differ, as the logarithm of an e-value, and the ratio of second over first."""

    log_e: float
    ratio: float
    interval: Interval


def sides_evidence(values: Floats, second: Sequence[bool]) -> SidesEvidence:
    """The evidence of logarithms of runs in the order of time, shape (n,), of which some are of the second side.

    Each side has at least LEAST_RUNS of the newest 512. Stalls are drawn in about the side's median.
    """
    values, side = values[-MOST_POINTS:], np.array(second, dtype=np.float64)[-MOST_POINTS:]
    middle = np.where(side == 1, np.median(values[side == 1]), np.median(values[side == 0]))
    # Where a third of the nights is at another level, most of them agree and would make it a stall.
    noise = max(noise_of(values - middle), float(np.std(values - middle)) / 2, _LEAST_NOISE)
    calm = about(values / noise, middle / noise)
    levels = Levels(calm, [side])
    evidence = float(levels.evidence([0], strict=True)[0])
    effect = levels.effect([0], 0)
    ratio, low, high = (math.exp(noise * each) for each in (effect.value, effect.low, effect.high))
    # Level, side, noise and memory are fitted: few runs say less than their likelihood.
    share = (len(values) - _FITTED) / len(values)
    return SidesEvidence(share * evidence - math.log(len(values)) / 2, ratio, Interval(low, high))


def nights_verdict(values: Floats, start: int, *, more_is_better: bool) -> NightsVerdict:
    """The verdict on a change that was searched for: logarithms of one figure a night, a new level from `start` on."""
    nights = (start, len(values) - start)
    shift = float(values[start:].mean() - values[:start].mean())
    if min(nights) < LEAST_RUNS:
        reason = f"{nights[0]} nights before and {nights[1]} after are too few"
        return NightsVerdict(Outcome.UNDECIDED, math.exp(shift), None, nights, LEVEL_NIGHTS - min(nights), reason)
    evidence = sides_evidence(values, (step(len(values), start) == 1).tolist())
    if min(nights) < LEVEL_NIGHTS:
        more = LEVEL_NIGHTS - min(nights)
        reason = f"{min(nights)} nights at one level may be a burst"
        return NightsVerdict(Outcome.UNDECIDED, evidence.ratio, evidence.interval, nights, more, reason)
    if evidence.log_e - math.log(len(values)) < -math.log(_ALPHA):
        reason = "the nights' own memory may look like this"
        return NightsVerdict(Outcome.UNDECIDED, evidence.ratio, evidence.interval, nights, None, reason)
    outcome = Outcome.IMPROVED if (evidence.ratio > 1) is more_is_better else Outcome.REGRESSED
    return NightsVerdict(outcome, evidence.ratio, evidence.interval, nights, 0)
