"""All nights before against all nights after, by a rule that holds for nights with memory."""

from __future__ import annotations

from dataclasses import dataclass

from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import Interval


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
