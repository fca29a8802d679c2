"""Equal ends say nothing of what lies between them: a loss and its cure cancel. A scan boots a few positions between.

Each of these points is asked by itself whether it is worse than the two ends together, by the same posterior as a range
of two positions. The chance of a wrong one is shared between the points. A loss that begins and is cured between two
neighbouring points is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Final

import numpy as np

from fsjoule.statistics.bisection.answer import Measure, Scanned, Standing
from fsjoule.statistics.bisection.posterior import PlainBootEvidence
from fsjoule.statistics.bisection.question import (
    BisectionEvidence,
    BisectionQuestion,
    BootFigures,
    ImageVariant,
    Purpose,
)

# A point is decided after so many boots at least, and left undecided after so many.
_LEAST: Final = 2
_MOST: Final = 10
_MISSED_SHARE: Final = 0.5
_ENDS: Final = -1  # stands for the ends among the points: they boot in each round, too


def scan_points(question: BisectionQuestion, evidence: BisectionEvidence, count: int) -> tuple[int, ...]:
    """At most `count` positions between the ends, evenly spaced, testable, each with another image."""
    last = question.positions - 1
    known = {evidence.pools.get(0), evidence.pools.get(last)} - {None}
    free = [position for position in range(1, last) if position not in evidence.untestable]
    points: list[int] = []
    for wanted in np.linspace(0, last, count + 2)[1:-1]:
        open_ = [each for each in free if each not in points and evidence.pools.get(each) not in known]
        if not open_:
            break
        nearest = min(open_, key=lambda each: (abs(each - float(wanted)), each))
        points.append(nearest)
        known |= {evidence.pools.get(nearest)} - {None}
    return tuple(sorted(points))


def next_scan(
    question: BisectionQuestion, evidence: BisectionEvidence, points: Sequence[int], standing: Standing, left: int
) -> Measure | Scanned:
    """The next boot of a scan, of which there may be `left`, or what it found. `evidence` has the scan's boots, too."""
    tested = [point for point in points if point not in evidence.untestable]
    chances = {point: _chance(question, _told(question, evidence.boots, point)) for point in tested}
    worse = [point for point in tested if chances[point][0] >= 1 - question.alpha / len(points)]
    clear = tuple(p for p in tested if p not in worse and chances[p][1] <= question.beta * _MISSED_SHARE)
    booted = [boot.position for boot in evidence.boots if boot.purpose is Purpose.SCAN]
    undecided = tuple(point for point in tested if point not in worse and point not in clear)
    unfinished = [point for point in undecided if booted.count(point) < _MOST]
    if worse or not unfinished or left <= 0:
        lost = tuple(sorted({*points} - {*tested} | {*undecided}))
        return Scanned(min(worse, default=None), clear, lost)
    ends = (0, question.positions - 1)
    counts = {_ENDS: sum(position in ends for position in booted)}
    counts |= {point: booted.count(point) for point in unfinished}
    turn = min(counts.values())
    rng = np.random.default_rng([question.seed, turn])
    order = [each for each in rng.permutation([_ENDS, *points]).tolist() if each in counts]
    order.sort(key=counts.__getitem__)
    first, *then = (ends[turn % 2] if each == _ENDS else each for each in order)
    return Measure(first, Purpose.SCAN, standing, runners_up=tuple(then[:2]))


def _told(question: BisectionQuestion, boots: Sequence[BootFigures], point: int) -> tuple[BootFigures, ...]:
    """The boots that tell of a point, as those of a range of two positions: the ends, and the point."""
    places = {0: 0, point: 1, question.positions - 1: 0}
    return tuple(
        replace(boot, position=places[boot.position])
        for boot in boots
        if boot.variant is ImageVariant.PLAIN and boot.position in places
    )


# A boot of one point changes nothing for the others.
@lru_cache(maxsize=256)
def _chance(question: BisectionQuestion, boots: tuple[BootFigures, ...]) -> tuple[float, float]:
    """How probable it is that a point is worse than the ends, over all metrics and in the one that shows most.

    Neither is known before it has booted often enough.
    """
    if sum(boot.position for boot in boots) < _LEAST:
        return 0.0, 1.0
    search = reduce(PlainBootEvidence.after, boots, PlainBootEvidence.start(replace(question, positions=2)))
    posterior = search.posterior(np.array([False, True]))
    return posterior.loss, posterior.overlooked
