"""The result of a comparison of two sides, for reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fsjoule.statistics.comparison import Verdict
from fsjoule.statistics.outcome import Criteria, Outcome
from fsjoule.store.finding import Finding, KernelWarning, Subject

Judged = Finding[Verdict[Subject]]
"""A figure of both sides with its verdict."""


@dataclass(frozen=True, slots=True)
class Invalid:
    run_id: str
    number: int
    label: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """The compared part of one side; `only_here` are series (with their kernel) that the other side lacks."""

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
    """The result of a request. `baseline_first` is the share of pairs of boots in which the baseline's was earlier.

    `paired` says that boots of both sides are neighbours, and are compared with each other only: then figures are
    geometric means over pairs, else medians over boots. `by_runs` says that the sides' runs were judged, not their
    boots, because they ran one after the other. `notes` are remarks that a reader needs; `damaged` maps
    unreadable paths to reasons, `folders` the ids of the runs to their folders, as far as they are known.
    """

    baseline: ComparedSide
    candidate: ComparedSide
    criteria: Criteria
    findings: tuple[Judged, ...]
    baseline_first: float
    interleaved: bool
    notes: tuple[str, ...]
    damaged: dict[str, str]
    paired: bool = False
    by_runs: bool = False
    folders: Mapping[str, Path] = field(default_factory=dict[str, Path])
    kernel_warnings: tuple[KernelWarning, ...] = ()

    @property
    def simulated(self) -> bool:
        return any(one.subject.simulated for one in self.findings)

    @property
    def counts(self) -> dict[Outcome, int]:
        """The number of findings per outcome, in the order of outcomes, without zeros."""
        counts = Counter(one.outcome for one in self.findings)
        return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}
