"""Change-point detectors behind the port: ours, and Otava for comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from otava.analysis import compute_change_points

from fsjoule.statistics.changepoints import ChangePointFinder
from fsjoule.statistics.finder import RupturesFinder, drawn_in

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OtavaFinder:
    """Apache Otava with its own window, on figures as they are or, with `calm`, drawn in as ours are."""

    max_p: float = 0.001
    calm: bool = False

    def find(self, values: Floats, level: int = 7) -> tuple[int, ...]:
        """The indexes at which a new level starts."""
        # Otava's t test divides by the mean; logarithms may have any.
        figures = np.exp(0.01 * drawn_in(values)) if self.calm else np.exp(values)
        changes, _ = compute_change_points(figures.tolist(), max_pvalue=self.max_p)
        return tuple(int(change.index) for change in changes)


def detectors() -> dict[str, ChangePointFinder]:
    return {
        "ruptures, penalty 3 alone": RupturesFinder(max_p=1.0),
        "ruptures, merged (ours)": RupturesFinder(),
        "Otava, p .001": OtavaFinder(0.001),
        "Otava, p .0001": OtavaFinder(0.0001),
        "Otava, p .0001, drawn in": OtavaFinder(0.0001, calm=True),
    }
