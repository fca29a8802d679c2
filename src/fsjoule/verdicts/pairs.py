"""Pairs of boots, as a gate takes them: freshly measured or read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fsjoule.model.metrics import Figure, Metric
from fsjoule.store.index.serieskeys import IndexedSeries

Test = tuple[IndexedSeries, Metric]
Figures = Mapping[Test, tuple[Figure, Figure]]


@dataclass(frozen=True, slots=True)
class Pair:
    """One boot of each side. `figures` are the baseline's and the candidate's, None where one is missing or invalid.

    `series` is how many series there are to be measured, of which a boot that failed has fewer. `faults` say what the
    lab did not do.
    """

    number: int
    figures: Figures
    series: int
    faults: tuple[str, ...] = ()


# Is given each pair when it is complete; returns why no more are wanted, or None.
Enough = Callable[[Pair], str | None]
