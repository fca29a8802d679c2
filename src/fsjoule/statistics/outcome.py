"""What a test says of a figure, or of a nominated change: the one list of answers, whoever asks."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """A comparison improves, is unchanged, regresses, is not reproducible or has too few boots.

    A sequential test asks for losses only: it ends regressed or not regressed, and is undecided until then.
    """

    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    REGRESSED = "regressed"
    NOT_REPRODUCIBLE = "not reproducible"
    TOO_FEW = "too few"
    NOT_REGRESSED = "not regressed"
    UNDECIDED = "undecided"


class Confirmed(StrEnum):
    """What fresh boots say of a nominated change."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
