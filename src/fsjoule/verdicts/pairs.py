"""Pairs of boots for a gate, freshly measured or read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fsjoule.model.metrics import Figure, Metric
from fsjoule.model.series import Series

Test = tuple[Series, Metric]
Figures = Mapping[Test, tuple[Figure, Figure]]


@dataclass(frozen=True, slots=True)
class Pair:
    """One boot of each side. `figures` are (baseline, candidate), None where one is missing or invalid.

    `series` is the number of planned series; a failed boot has fewer. `faults` are the lab's, `kernel_warnings` each
    side's.
    """

    number: int
    figures: Figures
    series: int
    faults: tuple[str, ...] = ()
    kernel_warnings: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


# Takes each complete pair; returns why no more are wanted, or None.
Enough = Callable[[Pair], str | None]
