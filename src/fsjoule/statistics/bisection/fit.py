"""Does one step explain all boots, or is there a second change in the range?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fsjoule.statistics.bisection.answer import Second
from fsjoule.statistics.bisection.losses import Loss
from fsjoule.statistics.bisection.posterior import Search, possible_positions
from fsjoule.statistics.bisection.question import Evidence

_CERTAIN: Final = 0.95


def second_step(search: Search, evidence: Evidence, bad: int, losses: Sequence[Loss]) -> Second | None:
    """Another step that the boots show once the loss at `bad` has been taken off; None if there is none.

    `losses` should be those of boots that no other step can have touched: neighbours of the culprit.
    """
    rest = Search.start(search.question)
    for boot in search.boots:
        if boot.position >= bad:
            less = tuple(figure - loss.size for figure, loss in zip(boot.figures, losses, strict=True))
            rest = rest.after(replace(boot, figures=less))
        else:
            rest = rest.after(boot)
    possible = possible_positions(search.question, evidence.pools)
    possible[bad] = False
    posterior = rest.posterior(possible)
    probability = max(posterior.loss, posterior.gain)
    if probability < _CERTAIN:
        return None
    is_gain = posterior.gain > posterior.loss
    at = posterior.gained if is_gain else int(posterior.first_bad.argmax())
    levels = rest.metrics[0]
    stretch = levels.stretch(at)
    return Second(
        parent=levels.edges[stretch - 1] if stretch else 0,
        bad=levels.edges[stretch] if stretch < len(levels.edges) else search.question.positions - 1,
        gain=is_gain,
        probability=probability,
        losses=rest.losses(at),
    )
