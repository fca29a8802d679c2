"""What a comparison of two sides found, as its reports take it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from fsjoule.model import SeriesKey
from fsjoule.model.metrics import Figure
from fsjoule.statistics.comparison import Outcome, Verdict
from fsjoule.statistics.criteria import Criteria
from fsjoule.statistics.ratios import Interval

CHANGES: Final = (Outcome.REGRESSED, Outcome.IMPROVED)
_SPREAD: Final = 2


@dataclass(frozen=True, slots=True)
class Subject:
    """What a verdict is about: a series, by the index's `key`, and the kernel where both sides have the same several.

    `label` tells it from the others of the comparison: `btrfs randwrite-16k`, with the board or options if they vary.
    """

    key: str
    series: SeriesKey
    simulated: bool
    label: str
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and the medians of both sides in the metric's unit; None for a side without a usable figure."""

    verdict: Verdict[Subject]
    baseline: Figure
    candidate: Figure

    @property
    def interval(self) -> Interval | None:
        """That of the ratio; None where a side has a single boot, which says nothing of its noise."""
        alone = min(self.verdict.n_baseline, self.verdict.n_candidate) < _SPREAD
        return None if self.verdict.ratio is None or alone else self.verdict.ratio.interval

    @property
    def changed(self) -> bool:
        return self.verdict.outcome in CHANGES

    @property
    def undecided(self) -> bool:
        return self.verdict.outcome in (Outcome.TOO_FEW, Outcome.NOT_REPRODUCIBLE)


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
    """The verdicts of one request. `baseline_first` is the share of pairs of boots in which the baseline's was earlier.

    `notes` say what a reader must know beside the figures, `damaged` maps what could not be read to the reason.
    """

    baseline: ComparedSide
    candidate: ComparedSide
    criteria: Criteria
    judged: tuple[Judged, ...]
    baseline_first: float
    interleaved: bool
    notes: tuple[str, ...]
    damaged: dict[str, str]

    @property
    def simulated(self) -> bool:
        return any(one.verdict.subject.simulated for one in self.judged)

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many verdicts of each kind there are, in the order of the kinds; none is zero."""
        found = Counter(one.verdict.outcome for one in self.judged)
        return {outcome: found[outcome] for outcome in Outcome if found[outcome]}
