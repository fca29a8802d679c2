"""The finding on one figure of one series, for comparisons and gates, and the order of importance."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fsjoule.model import SeriesKey
from fsjoule.model.metrics import Figure, Metric
from fsjoule.statistics.gate import smallest_loss
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import Interval

B_co = TypeVar("B_co", covariant=True)

# The largest relative standard deviation of boots on a board in guest time, for the figures that are `steady`
# (docs/deterministic-figures.md). Boots of one kernel never differed by more than half of `_FAR` times as much.
GUEST_TIME_SPREAD: Final = 0.01
_FAR: Final = 5
FAR_FROM_EQUAL: Final = _FAR * GUEST_TIME_SPREAD

_UNDECIDED: Final = frozenset({Outcome.UNDECIDED, Outcome.TOO_FEW, Outcome.NOT_REPRODUCIBLE})


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a finding: a series, by the index's `key`, and the kernel if both sides have the same several.

    `label` is unique in the request: `btrfs randwrite-16k`, with the board or options if they vary.
    """

    key: str
    series: SeriesKey
    simulated: bool
    label: str
    kernel: str = ""

    @property
    def name(self) -> str:
        return f"{self.label}, kernel {self.kernel}" if self.kernel else self.label


@dataclass(frozen=True, slots=True)
class Finding(Generic[B_co]):
    """One figure of one series: the candidate's change against the baseline, and its outcome.

    `ratio` is candidate over baseline, `interval` its 95 % interval; both are None without usable figures, the interval
    also if a side has a single boot, which shows no noise. `matters` is the smallest change that matters, as a fraction
    of the baseline. `baseline` and `candidate` are medians, or geometric means of pairs, in the metric's unit over
    `boots`. `guest_time` says that the board's spread is known. `basis` is the method's own result: a comparison's
    verdict, or a gate test's state.
    """

    subject: Subject
    metric: Metric
    outcome: Outcome
    ratio: float | None
    interval: Interval | None
    matters: float
    baseline: Figure
    candidate: Figure
    boots: tuple[int, int]
    basis: B_co
    guest_time: bool = False

    @property
    def name(self) -> str:
        return f"{self.subject.name} {self.metric}"

    @property
    def regressed(self) -> bool:
        return self.outcome is Outcome.REGRESSED

    @property
    def changed(self) -> bool:
        return self.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)

    @property
    def undecided(self) -> bool:
        return self.outcome in _UNDECIDED

    @property
    def lost(self) -> float:
        """The loss in units of the smallest effect that matters; negative for a gain, zero without a ratio."""
        if self.ratio is None:
            return 0.0
        loss = -math.log(self.ratio) if self.metric.more_is_better else math.log(self.ratio)
        return loss / smallest_loss(self.matters, more_is_better=self.metric.more_is_better)

    @property
    def single(self) -> bool:
        """Whether this is one boot of each side on a board in guest time: no verdict, but its spread is known."""
        known = self.guest_time and self.metric.row.steady and self.ratio is not None
        return known and self.undecided and self.boots == (1, 1)

    @property
    def far(self) -> bool:
        """Whether single boots differ by far more than the board's own spread."""
        return self.single and abs(math.log(self.ratio or 1.0)) > FAR_FROM_EQUAL


F = TypeVar("F", bound=Finding[object])


def important_first(findings: Iterable[F]) -> list[F]:
    """Findings in order: regressed, possibly regressed, gains, undecided, and the rest; largest loss or gain first."""
    return sorted(findings, key=lambda one: (_rank(one), one.lost if one.outcome is Outcome.IMPROVED else -one.lost))


def _rank(one: Finding[object]) -> int:
    if one.regressed or (one.far and one.lost > 0):
        return 0
    if one.undecided and one.lost >= 1:
        return 1
    if one.outcome is Outcome.IMPROVED or one.far:
        return 2
    return 3 if one.undecided else 4


@dataclass(frozen=True, slots=True)
class KernelWarning:
    """A fault that a kernel reported, and in how many boots of each side, out of `of_baseline` and `of_candidate`."""

    text: str
    baseline: int
    candidate: int
    of_baseline: int
    of_candidate: int

    @property
    def new(self) -> bool:
        return not self.baseline

    def __str__(self) -> str:
        who = (
            "the candidate warns" if self.new else "both kernels warn" if self.candidate else "the baseline alone warns"
        )
        return (
            f"{who}: {self.text} (in {self.candidate} of {self.of_candidate} boots; "
            f"baseline: {self.baseline} of {self.of_baseline})"
        )


def kernel_warnings(
    baseline: Iterable[tuple[Hashable, Iterable[str]]], candidate: Iterable[tuple[Hashable, Iterable[str]]]
) -> tuple[KernelWarning, ...]:
    """The warnings of both sides, what only the candidate has first; each side are boots and texts, in any order."""
    sides = (_by_boot(baseline), _by_boot(candidate))
    ours, theirs = sides
    texts = dict.fromkeys(text for side in sides for found in side.values() for text in sorted(found))
    warnings = [KernelWarning(text, _boots(ours, text), _boots(theirs, text), len(ours), len(theirs)) for text in texts]
    return tuple(sorted(warnings, key=lambda each: (not each.new, not each.candidate)))


def news(warnings: Iterable[KernelWarning]) -> list[str]:
    """For a headline: `the candidate warns: WARNING fs/ext4/inode.c ext4_iomap_begin and 2 more`, or nothing."""
    texts = [each.text for each in warnings if each.new]
    more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
    return [f"the candidate warns: {texts[0]}{more}"] if texts else []


def _by_boot(side: Iterable[tuple[Hashable, Iterable[str]]]) -> Mapping[Hashable, set[str]]:
    boots: dict[Hashable, set[str]] = {}
    for boot, texts in side:
        boots.setdefault(boot, set()).update(texts)
    return boots


def _boots(side: Mapping[Hashable, set[str]], text: str) -> int:
    return sum(text in messages for messages in side.values())
