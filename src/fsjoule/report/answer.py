"""Which filesystem of a run is better for each operation, in words: the head of the run's page.

`verdicts.filesystems` judges; nothing is decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.model import Workload
from fsjoule.model.labels import counted
from fsjoule.model.metrics import Metric
from fsjoule.report.numbers import change_text
from fsjoule.report.summary import Summary
from fsjoule.report.words import means
from fsjoule.statistics.criteria import Criteria
from fsjoule.statistics.outcome import Outcome
from fsjoule.verdicts.comparison import Judged
from fsjoule.verdicts.filesystems import Contest
from fsjoule.verdicts.finding import FAR_FROM_EQUAL

NOT_DISTINGUISHABLE: Final = "not distinguishable"
ALIKE: Final = "alike"
_ENERGY: Final = (Metric.ENERGY, Metric.OPERATION_ENERGY)
# A sentence or a cell names this many filesystems; the rest is counted.
_NAMED: Final = 3
_FINE: Final = 0.2  # percent; a narrower interval needs another decimal


@dataclass(frozen=True, slots=True)
class Cell:
    """The answer in one figure: `best` is the filesystem, or that there is none; `why` by how much and how sure."""

    best: str
    why: str
    decided: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One operation. `where` is what else sets it apart: the suite's part, the storage, the kernel."""

    operation: str
    where: str
    speed: Cell | None
    energy: Cell | None


@dataclass(frozen=True, slots=True)
class Answer:
    """`headline` is the whole answer in a sentence or two, `rules` how sure it is; `lines` may be empty."""

    headline: str
    lines: tuple[Line, ...] = ()
    rules: str = ""

    @property
    def has_energy(self) -> bool:
        return any(line.energy for line in self.lines)


def answer(summary: Summary, contests: Sequence[Contest]) -> Answer:
    """The run's answer; without a second filesystem, or without a valid figure, its headline says so."""
    if not contests:
        return Answer(_nothing(summary))
    found: dict[tuple[str, str], dict[bool, Cell]] = {}
    for each in _in_order(summary, contests):
        cells = found.setdefault((each.workload.label, _where(summary, each)), {})
        cells[each.metric in _ENERGY] = _cell(each)
    lines = tuple(Line(*name, cells.get(False), cells.get(True)) for name, cells in found.items())
    return Answer(_headline(contests), lines, _rules(Criteria()))


def _nothing(summary: Summary) -> str:
    rows = (*summary.fio, *summary.timed)
    if summary.outcomes and not rows:
        return ""
    if not summary.measured:
        return "Nothing was measured: there is no answer."
    filesystems = list(dict.fromkeys(row.label for row in rows if row.valid))
    if not filesystems:
        return "No measurement is valid: there is no answer."
    if len(filesystems) > 1:
        counts = Counter((row.series.suite, row.workload, row.series.storage, row.kernel) for row in rows if row.valid)
        if max(counts.values()) > 1:
            return f"{len(filesystems)} filesystems are too many to compare each with each: there is no answer."
        return "No operation has valid figures of two filesystems: there is no answer."
    return f"Only {filesystems[0]} has valid figures: there is nothing to compare it with."


def _in_order(summary: Summary, contests: Sequence[Contest]) -> list[Contest]:
    """The contests in the order of the page's tables."""
    rows = (*summary.fio, *summary.timed)
    order: dict[tuple[str, Workload, str, str], int] = {}
    for row in rows:
        order.setdefault((row.series.suite, row.workload, row.series.storage, row.kernel), len(order))
    return sorted(contests, key=lambda one: order.get((one.suite, one.workload, one.storage, one.kernel), len(order)))


def _where(summary: Summary, one: Contest) -> str:
    parts = [one.suite.split("/")[-1]] if summary.several_parts else []
    parts += [one.storage] if summary.several_storages else []
    parts += [f"kernel {one.kernel}"] if summary.several_kernels else []
    return ", ".join(parts)


def _cell(one: Contest) -> Cell:
    first, behind, level = one.names[0], one.behind, one.level
    if not level:
        return Cell(first, _than(behind), decided=True)
    alike = all(each.outcome is Outcome.UNCHANGED for each in level.values())
    if behind:
        together = [first, *level]
        names = " or ".join(together) if len(together) <= _NAMED else f"{first} or {counted(len(level), 'other')}"
        why = f"{first} {_than(behind)}. Between {'them' if len(together) <= _NAMED else 'these'}: "
        return Cell(names, f"{why}{_undecided(first, level)}", decided=False)
    return Cell(ALIKE if alike else NOT_DISTINGUISHABLE, _undecided(first, level), decided=False)


def _than(others: Mapping[str, Judged]) -> str:
    """`12.3 % faster than btrfs (95 %: 10.1 to 14.2 %), 31.0 % faster than f2fs (...)`; the nearest of many."""
    told = [f"{_change(one)} than {name}{_interval(one)}" for name, one in list(others.items())[:_NAMED]]
    rest = len(others) - len(told)
    return ", ".join(told) + (f", and than {counted(rest, 'other')}" if rest > 0 else "")


def _change(one: Judged) -> str:
    assert one.ratio is not None, "a filesystem without usable figures enters no contest"
    return change_text(one.metric, one.ratio)


def _interval(one: Judged) -> str:
    """The interval of the gain, in the direction of the change's word; a bound below zero is a loss."""
    if one.interval is None:
        return ""
    bounds = [100 * (bound - 1) for bound in (one.interval.low, one.interval.high)]
    low, high = bounds if one.metric.more_is_better else (-bounds[1], -bounds[0])
    decimals = 1 if high - low >= _FINE else 2
    return f" (95 %: {low:.{decimals}f} to {high:.{decimals}f} %)"


def _undecided(first: str, level: Mapping[str, Judged]) -> str:
    """Why the first is not shown to be better than these: told of the nearest, or of those that are far behind."""
    if far := {name: one for name, one in level.items() if one.far}:
        return f"{first} {_than(far)}: far beyond the spread of boots, but one boot of each is no verdict"
    name, nearest = next(iter(level.items()))
    boots = min(nearest.boots)
    if nearest.outcome is Outcome.UNCHANGED:
        return f"they differ by less than {100 * nearest.matters:g} %"
    if nearest.single:
        return f"they differ by less than {100 * FAR_FROM_EQUAL:g} %, on one boot of each"
    ahead = f"{first} {_than({name: nearest})}"
    if nearest.outcome is Outcome.TOO_FEW:
        needed = max(boots + 1, boots + (nearest.basis.more_baseline or 0))
        too_few = f"{counted(boots, 'boot')} of each {'is' if boots == 1 else 'are'} too few"
        return f"{ahead}, but {too_few}: {needed} may tell"
    return f"{ahead}, but boots spread too much: {100 * nearest.matters:g} % would matter"


def _headline(contests: Sequence[Contest]) -> str:
    """`ext4 is faster in 4 of 6 operations. 8 of 12 figures have no single winner: 8 too few boots.`, for example."""
    sentences: list[str] = []
    if won := _won(contests, lambda one: one.decided):
        sentences.append(f"{won}.")
    if far := _won(contests, _all_far):
        sentences.append(f"No verdict on one boot of each, but far beyond the spread of boots: {far}.")
    if not sentences:
        sentences.append("No filesystem is shown to be better than the others.")
    rest = [one for one in contests if not one.decided and not _all_far(one)]
    if rest:
        counts = Counter(_reason(one) for one in rest)
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
        sentences.append(f"{len(rest)} of {counted(len(contests), 'figure')} have no single winner: {reasons}.")
    return " ".join(sentences)


def _all_far(one: Contest) -> bool:
    return bool(one.level) and all(each.far for each in one.level.values())


def _won(contests: Sequence[Contest], wins: Callable[[Contest], bool]) -> str:
    """`ext4 is faster in 4 of 6 operations and thriftier in 3 of 6; btrfs is faster in 1 of 6`."""
    of_all = Counter(one.metric in _ENERGY for one in contests)
    found: dict[str, Counter[bool]] = {}
    for one in contests:
        if wins(one):
            found.setdefault(one.names[0], Counter())[one.metric in _ENERGY] += 1
    ranked = sorted(found.items(), key=lambda each: -each[1].total())
    told = [f"{name} is {' and '.join(_counts(won, of_all))}" for name, won in ranked[:_NAMED]]
    rest = len(ranked) - len(told)
    return "; ".join(told) + (f"; {counted(rest, 'other')} in fewer" if rest > 0 else "")


def _counts(won: Mapping[bool, int], of_all: Mapping[bool, int]) -> Iterable[str]:
    for energy, word in ((False, "faster"), (True, "thriftier")):
        if won.get(energy):
            yield f"{word} in {won[energy]} of {counted(of_all[energy], 'operation')}"


def _reason(one: Contest) -> str:
    nearest = next(iter(one.level.values()))
    return ALIKE if nearest.outcome is Outcome.UNCHANGED else means(nearest)


def _rules(criteria: Criteria) -> str:
    return (
        "Every two filesystems are compared as fsjoule compare compares two kernels: change of medians, one figure per "
        f"boot, with its 95 % interval. A filesystem is better with p <= {100 * criteria.alpha:g} % and "
        f"q <= {100 * criteria.false_discoveries:g} % (q: p over all pairs of all operations; Benjamini, Hochberg). "
        f"Alike: any difference is below {100 * criteria.smallest_effect:g} %, or certain and below "
        f"{100 * criteria.negligible:g} % (docs/statistics.md)"
    )
