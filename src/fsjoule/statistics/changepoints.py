"""Change points in the history of a series: what a detector nominates. `confirmation` has what becomes of it.

No detector's threshold is a false-alarm rate: it is asked anew after every run, and boots stall. So what it finds is a
candidate, and only a sequential test with a stated error rate makes it a change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from fsjoule.model.metrics import Figure
from fsjoule.statistics.figures import complaint
from fsjoule.statistics.ratios import Floats

# A detector is one or two points off now and then; the points to be run anew keep that distance from the change.
_MARGIN: Final = 2


class ChangePointFinder(Protocol):
    """Finds where the level of a series changes."""

    def find(self, values: Floats) -> tuple[int, ...]:
        """The indexes at which a new level starts, ascending.

        `values` is one-dimensional and in order; all are finite logarithms of figures.
        """
        ...


@dataclass(frozen=True, slots=True)
class Nomination:
    """A change that a detector suggests. All indexes are those of the series as it was given.

    The new level starts at `index`; `ratio` is its median over that of the level before. `before` and `after` are the
    points to be run anew: near the change, but not so near that a detector that is slightly off would miss it.
    """

    index: int
    before: int
    after: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Nominations:
    """What a detector suggests for one series, and which of its points were not used, with the reason."""

    nominations: tuple[Nomination, ...]
    left_out: tuple[str, ...] = ()


def nominate(figures: Sequence[Figure], finder: ChangePointFinder) -> Nominations:
    """Candidates for change points in a series, one figure a run, in order.

    Figures that are missing, not finite or not above zero are left out and named; they split nothing.
    """
    found = [(index, figure, complaint(figure)) for index, figure in enumerate(figures)]
    left_out = tuple(f"point {index}: {wrong}" for index, _, wrong in found if wrong)
    places = [index for index, _, wrong in found if not wrong]
    values = np.log(np.array([figure for _, figure, wrong in found if not wrong], dtype=np.float64))
    starts = finder.find(values) if len(values) else ()
    edges = [0, *starts, len(values)]
    nominations = [
        Nomination(
            index=places[start],
            before=places[max(edges[number], start - 1 - _MARGIN)],
            after=places[min(edges[number + 2] - 1, start + _MARGIN)],
            ratio=math.exp(
                float(np.median(values[start : edges[number + 2]]) - np.median(values[edges[number] : start]))
            ),
        )
        for number, start in enumerate(starts)
    ]
    return Nominations(tuple(nominations), left_out)
