"""How a series moves from night to night without a change: its noise, its memory, its drift."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """The movement of a series that is no change. Sizes are fractions, 0.02 is 2 %.

    `noise` is the standard deviation of a night about its level. `nights` of the series tell as much as one independent
    night. `sees` is the smallest step down that would be nominated within ten nights, as a ratio of levels. `drift` is
    the last level over the first one of a slow drift, None without one. `bursts` counts stretches of a few nights that
    left the level and came back.
    """

    noise: float
    nights: float
    sees: float
    drift: float | None = None
    bursts: int = 0
