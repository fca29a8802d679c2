"""What a comparison of two sides found, as its reports take it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fsjoule.statistics.comparison import Verdict
from fsjoule.statistics.criteria import Criteria
from fsjoule.statistics.outcome import Outcome
from fsjoule.verdicts.finding import Finding, Subject

Judged = Finding[Verdict[Subject]]
"""A figure of both sides, with the verdict on it."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """A measurement that was not used, and why."""

    run_id: str
    number: int
    label: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side: what it is called, and what of it was compared. Times are as in the index.

    `only_here` are series (with their kernel) that the other side has not got.
    """

    kind: str
    name: str
    title: str
    kernels: tuple[str, ...]
    runs: tuple[str, ...]
    commits: tuple[str, ...]
    boots: int
    measurements: int
    first_utc: str
    last_utc: str
    invalid: tuple[Invalid, ...]
    only_here: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """What one request found. `baseline_first` is the share of pairs of boots in which the baseline's was earlier.

    `notes` say what a reader must know beside the figures, `damaged` maps what could not be read to the reason.
    """

    baseline: ComparedSide
    candidate: ComparedSide
    criteria: Criteria
    findings: tuple[Judged, ...]
    baseline_first: float
    interleaved: bool
    notes: tuple[str, ...]
    damaged: dict[str, str]

    @property
    def simulated(self) -> bool:
        return any(one.subject.simulated for one in self.findings)

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many findings of each kind there are, in the order of the kinds; none is zero."""
        found = Counter(one.outcome for one in self.findings)
        return {outcome: found[outcome] for outcome in Outcome if found[outcome]}
