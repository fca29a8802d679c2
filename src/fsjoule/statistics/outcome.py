"""The possible answers of tests about a figure, or about a nominated change."""

from __future__ import annotations

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
