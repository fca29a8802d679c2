"""Change points that a detector nominates in the history of a series; `gate` tests them.

A detector's threshold is no false-alarm rate, because the detector is asked after every run, and boots stall. So it
only finds candidates; a sequential test with a stated error rate makes them changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from fsjoule.model.metrics import Figure
from fsjoule.statistics.figures import complaint
from fsjoule.statistics.memory import LEVEL_NIGHTS, MOST_POINTS, Memory, memory_of
from fsjoule.statistics.nights import NightsVerdict, nights_verdict
from fsjoule.statistics.ratios import Floats

# A detector is sometimes one or two points off; the points to measure again keep this distance from the change.
_MARGIN: Final = 2
_MOST_A_SIDE: Final = MOST_POINTS // 2


class ChangePointFinder(Protocol):
    def find(self, values: Floats, level: int = LEVEL_NIGHTS) -> tuple[int, ...]:
        """The indexes at which a new level starts, ascending; `values` are finite logarithms, in order, shape (n,).

        What is shorter than `level` points may be a burst.
        """
        ...


@dataclass(frozen=True, slots=True)
class Nomination:
    """A change that a detector suggests. All indexes refer to the series as given.

    The new level starts at `index`; `ratio` is its median over the median before. `before` and `after` are the points
    to measure again: near the change, but on the right side of it even if the detector is slightly off. `verdict` is
    what all points before and after say, as far as the neighbouring changes.
    """

    index: int
    before: int
    after: int
    ratio: float
    verdict: NightsVerdict | None = None


@dataclass(frozen=True, slots=True)
class Nominations:
    """A detector's suggestions for one series, and the points that it did not use, with reasons.

    `memory` is None for a series that is too short for a change.
    """

    nominations: tuple[Nomination, ...]
    left_out: tuple[str, ...] = ()
    memory: Memory | None = None


def nominate(
    figures: Sequence[Figure], finder: ChangePointFinder, *, more_is_better: bool = True, level: int = LEVEL_NIGHTS
) -> Nominations:
    """Candidates for change points, from one figure per run, in order; unusable figures are left out and named.

    A level of fewer than `level` points may be a burst, where points are nights.
    """
    entries = [(index, figure, complaint(figure)) for index, figure in enumerate(figures)]
    left_out = tuple(f"point {index}: {wrong}" for index, _, wrong in entries if wrong)
    places = [index for index, _, wrong in entries if not wrong]
    values = np.log(np.array([figure for _, figure, wrong in entries if not wrong], dtype=np.float64))
    starts = finder.find(values, level) if len(values) else ()
    edges = [0, *starts, len(values)]
    nominations: list[Nomination] = []
    for left, start, right in zip(edges, edges[1:], edges[2:], strict=False):
        around = values[max(left, start - _MOST_A_SIDE) : min(right, start + _MOST_A_SIDE)]
        nominations.append(
            Nomination(
                index=places[start],
                before=places[max(left, start - 1 - _MARGIN)],
                after=places[min(right - 1, start + _MARGIN)],
                ratio=math.exp(float(np.median(values[start:right]) - np.median(values[left:start]))),
                verdict=nights_verdict(around, start - max(left, start - _MOST_A_SIDE), more_is_better=more_is_better),
            )
        )
    return Nominations(tuple(nominations), left_out, memory_of(values, starts))
