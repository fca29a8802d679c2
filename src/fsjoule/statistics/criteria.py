"""What a comparison must show before a verdict is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a verdict takes. Effects are fractions of the baseline.

    `alpha` is the two-sided level of one comparison, `false_discoveries` the share of false ones among all changes of a
    request. `smallest_effect` is what must be excluded for `unchanged`, and what `power` refers to; `negligible` is
    the change below which none is told, however certain. `most_unusable` is the share of a side's figures that may be
    unusable before nothing is said.
    """

    alpha: float = 0.005
    false_discoveries: float = 0.01
    power: float = 0.9
    smallest_effect: float = 0.05
    negligible: float = 0.005
    most_unusable: float = 0.2
    seed: int = 0
