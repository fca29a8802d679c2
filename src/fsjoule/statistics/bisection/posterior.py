"""The posterior over the first bad position, with `no loss that matters` as one of the hypotheses.

Several metrics of one boot share its noise, so their likelihoods must not be multiplied. Instead their likelihood
ratios of a loss against no loss are averaged: an average of e-values is an e-value however they depend on each other
(Vovk, Wang, Annals of Statistics 49, 2021). The metric that shows most leads, and each further one costs next to
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.statistics.bisection.levels import CALM, DRIFT_ODDS, LevelFilters
from fsjoule.statistics.bisection.losses import LossEstimate, likelihoods, loss_at
from fsjoule.statistics.bisection.question import (
    BisectionEvidence,
    BisectionQuestion,
    BootFigures,
    ImageVariant,
    Purpose,
)
from fsjoule.statistics.evidence import KnownNoise
from fsjoule.statistics.ratios import Floats

# Before the first boot: a loss somewhere, nothing at all, or only a gain somewhere.
_LOSS_ODDS: Final = math.log(0.48)
_NONE_ODDS: Final = math.log(0.48)
_GAIN_ODDS: Final = math.log(0.04)
# Boots of an earlier time that disagree with the fresh ones must not outweigh them.
_MOST_DEGREES: Final = 4
# The noise without any earlier boot, as a share of the smallest loss that matters, and its degrees of freedom.
_NOISE_OF_EFFECT: Final = 0.4
_NOISE_DEGREES: Final = 2
# From this probability on fresh boots contradict recorded ones.
_SURE: Final = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Probabilities: `first_bad` by position, shape (positions,), `nothing` (no change at all) and `gain` (only gains).

    They add up to one. `overlooked` is the probability of a loss in the metric in which it is most probable, `leading`
    that metric. `gained` is the most probable position of a gain.
    """

    first_bad: Floats
    nothing: float
    gain: float
    gained: int
    leading: int
    overlooked: float

    @property
    def loss(self) -> float:
        """How probable it is that there is a culprit at all."""
        return float(self.first_bad.sum())


@dataclass(frozen=True, slots=True, eq=False)
class PlainBootEvidence:
    """The evidence of plain boots: one filter per metric, each boot taken in once."""

    question: BisectionQuestion
    metrics: tuple[LevelFilters, ...]
    boots: tuple[BootFigures, ...] = field(default=())

    @classmethod
    def start(cls, question: BisectionQuestion) -> PlainBootEvidence:
        known = question.noise or (None,) * len(question.effects)
        drift = CALM if question.seeded else DRIFT_ODDS
        noises = (_noise(*both) for both in zip(known, question.effects, strict=True))
        return cls(question, tuple(LevelFilters.start(noise, drift) for noise in noises))

    def after(self, boot: BootFigures) -> PlainBootEvidence:
        """One boot later; a boot of another variant than the plain one tells nothing here."""
        if boot.variant is not ImageVariant.PLAIN:
            return self
        metrics = tuple(
            levels.after(boot.position, boot.number, boot.board, figure)
            for levels, figure in zip(self.metrics, boot.figures, strict=True)
        )
        return replace(self, metrics=metrics, boots=(*self.boots, boot))

    def losses(self, position: int) -> tuple[LossEstimate, ...]:
        """Each metric's loss if that position is the first bad one."""
        return tuple(loss_at(levels, levels.stretch(position)) for levels in self.metrics)

    def posterior(self, possible: npt.NDArray[np.bool_]) -> Posterior:
        """Given which positions may be the first bad one at all, shape (positions,)."""
        rows = np.searchsorted(self.metrics[0].edges, np.arange(self.question.positions))
        prior = np.where(possible, -math.log(max(1, int(possible.sum()))), -np.inf)
        odds = np.zeros((len(self.metrics), self.question.positions))  # of a loss against none, in each metric
        gains, gained = np.zeros(len(self.metrics)), np.zeros(len(self.metrics), dtype=np.int64)
        for metric, (levels, effect) in enumerate(zip(self.metrics, self.question.effects, strict=True)):
            evidence = likelihoods(levels, effect)
            by_gain = prior + evidence.gain[rows] - evidence.none + _GAIN_ODDS
            harmless = np.logaddexp.reduce([*by_gain, _NONE_ODDS])
            odds[metric] = prior + evidence.loss[rows] - evidence.none + _LOSS_ODDS - harmless
            gains[metric], gained[metric] = -math.expm1(_NONE_ODDS - harmless), by_gain.argmax()
        each = np.logaddexp.reduce(odds, axis=1)
        leading = int(each.argmax())
        by_loss = np.logaddexp.reduce(odds, axis=0) - math.log(len(odds))
        total = np.logaddexp.reduce([*by_loss, 0.0])
        gain = math.exp(-total) * float(gains.max())
        return Posterior(
            first_bad=np.exp(by_loss - total),
            nothing=math.exp(-total) - gain,
            gain=gain,
            gained=int(gained[gains.argmax()]),
            leading=leading,
            overlooked=float(np.exp(each[leading] - np.logaddexp(each[leading], 0.0))),
        )


def _noise(known: KnownNoise | None, effect: float) -> KnownNoise:
    """The noise before the first boot: as known, or next to nothing, about what one needs to see that effect."""
    if known is None:
        return KnownNoise(effect * _NOISE_OF_EFFECT, _NOISE_DEGREES)
    return replace(known, degrees=min(known.degrees, _MOST_DEGREES))


def possible_positions(question: BisectionQuestion, pools: Mapping[int, str]) -> npt.NDArray[np.bool_]:
    """Which positions may be the first bad one: not 0, and none between two positions whose images are equal."""
    possible = np.ones(question.positions, dtype=np.bool_)
    possible[0] = False
    ends: dict[str, tuple[int, int]] = {}
    for position, pool in pools.items():
        low, high = ends.get(pool, (position, position))
        ends[pool] = (min(low, position), max(high, position))
    for low, high in ends.values():
        possible[low + 1 : high + 1] = False
    return possible


def gathered(question: BisectionQuestion, evidence: BisectionEvidence) -> PlainBootEvidence:
    """All plain boots of the evidence, one after the other; recorded ones unless fresh boots contradict them."""
    plain = [boot for boot in evidence.boots if boot.variant is ImageVariant.PLAIN]
    every = reduce(PlainBootEvidence.after, plain, PlainBootEvidence.start(question))
    own = [boot for boot in plain if boot.purpose is not Purpose.RECORDED]
    if len(own) in (0, len(plain)):
        return every
    fresh = reduce(PlainBootEvidence.after, own, PlainBootEvidence.start(question))
    possible = possible_positions(question, evidence.pools)
    loss, alone = every.posterior(possible).loss, fresh.posterior(possible).loss
    contradicted = max(alone, 1 - alone) >= _SURE and (loss > 1 / 2) != (alone > 1 / 2)
    return fresh if contradicted else every
