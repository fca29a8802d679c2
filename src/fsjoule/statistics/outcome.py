"""What a comparison is asked, and the possible answers of tests about a figure, or about a nominated change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """A comparison improves, is unchanged, regresses, is not reproducible or has too few boots.

    A sequential test looks only for losses: it ends regressed or not regressed, and is undecided until then.
    """

    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    REGRESSED = "regressed"
    NOT_REPRODUCIBLE = "not reproducible"
    TOO_FEW = "too few"
    NOT_REGRESSED = "not regressed"
    UNDECIDED = "undecided"


class Confirmed(StrEnum):
    """The answer of fresh boots about a nominated change."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Criteria:
    """Effects are fractions of the baseline.

    `alpha` is the two-sided level of one comparison, `false_discoveries` the share of false changes among all changes
    of a request. `unchanged` excludes effects of `smallest_effect`, to which `power` refers; changes below `negligible`
    are never reported, however certain. `most_unusable` is the largest share of unusable figures on a side with a
    verdict.
    """

    alpha: float = 0.005
    false_discoveries: float = 0.01
    power: float = 0.9
    smallest_effect: float = 0.05
    negligible: float = 0.005
    most_unusable: float = 0.2
    seed: int = 0
