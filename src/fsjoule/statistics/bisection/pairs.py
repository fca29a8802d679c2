"""Two images boot in turn: does the second one have the loss?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.statistics.bisection.levels import Levels
from fsjoule.statistics.bisection.losses import Loss, likelihoods, loss_at
from fsjoule.statistics.bisection.posterior import Search
from fsjoule.statistics.bisection.question import Boot
from fsjoule.statistics.evidence import KnownNoise
from fsjoule.statistics.order import Turn, interleaved

# All other boots' evidence on the noise counts as so many degrees of freedom.
_DEGREES: Final = 20
# No kind of drift is ruled out by them.
_LEAST_ODDS: Final = math.log(0.01)
# No verdict before so many boots of each image.
_LEAST: Final = 2


@dataclass(frozen=True, slots=True)
class Paired:
    """The evidence of boots of two images. `ratio` is the logarithm of the likelihood ratio of a loss against none.

    Under no loss it exceeds log(1/a), whenever one looks, with probability a at most.
    """

    first: int = 0
    second: int = 0
    ratio: float = 0.0
    losses: tuple[Loss, ...] = ()

    @property
    def enough(self) -> bool:
        return min(self.first, self.second) >= _LEAST

    def turn(self, seed: int) -> bool:
        """Whether the second image boots next: in random ABBA order, or because it lags behind."""
        if abs(self.first - self.second) > 1:
            return self.second < self.first
        done = self.first + self.second
        return interleaved(done // 2 + 1, seed=seed)[done // 2][done % 2] is Turn.CANDIDATE


def paired(search: Search, bad: int, boots: Sequence[tuple[Boot, bool]]) -> Paired:
    """The evidence of these boots alone, each marked as one of the second image or not.

    Noise, drift and the size of the loss are expected as all boots of the search have them for the position `bad`.
    """
    if not boots:
        return Paired()
    ratios: list[float] = []
    losses: list[Loss] = []
    for metric, effect in enumerate(search.question.effects):
        learnt = search.metrics[metric]
        stretch = learnt.stretch(bad)
        found = loss_at(learnt, stretch)
        odds = np.logaddexp.reduce(learnt.weight[stretch], axis=1)
        odds = np.logaddexp(odds - np.logaddexp.reduce(odds), _LEAST_ODDS)
        levels = Levels.start(KnownNoise(found.noise, _DEGREES), odds).parted(0).parted(1)
        for boot, second in boots:
            levels = levels.after(int(second), boot.number, boot.board, boot.figures[metric])
        both = likelihoods(levels, effect, found)
        ratios.append(float(both.loss[1]) - both.none)
        losses.append(loss_at(levels, 1))
    second = sum(second for _, second in boots)
    ratio = float(np.logaddexp.reduce(ratios)) - math.log(len(ratios))
    return Paired(len(boots) - second, second, ratio, tuple(losses))
