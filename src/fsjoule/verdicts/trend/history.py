"""From the rows of an index to histories: one figure a run, or one a kernel, in order. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from fsjoule.model import TimedKind
from fsjoule.model.metrics import Metric
from fsjoule.statistics.figures import complaint, one_per_boot
from fsjoule.store.index.kernels import Kernel
from fsjoule.store.index.newestrows import BOOT, FIGURES, KERNEL, RUN, STARTED, NewestRows, Row
from fsjoule.store.index.records import Order
from fsjoule.store.index.serieskeys import IndexedSeries

# What is looked at if nothing else is asked for: of fio's jobs, and of what moves nothing.
FIO: Final = (Metric.THROUGHPUT, Metric.ENERGY)
TIMED: Final = (Metric.DURATION, Metric.OPERATION_ENERGY)
USUAL: Final = FIO + TIMED
_TIMED_KINDS: Final = frozenset(kind.value for kind in TimedKind)
# Of the interval of a median, if there are boots enough.
_CONFIDENCE: Final = 0.95
_MANY: Final = 500

# For each run of several kernels what it calls them, by the numbers of run and kernel.
Labels = Mapping[tuple[int, int], str]


class HistoryPoint(NamedTuple):
    """One run of a series, or one kernel, and its figure: the median over its boots, or over its runs.

    `boots` are the figures of all boots behind it. `run` is the run, of several the newest; both it and `kernel` are
    numbers in the index. A tuple, as there are tens of thousands of them.
    """

    run: int
    kernel: int | None
    started_utc: str
    figure: float
    boots: tuple[float, ...]
    runs: int


@dataclass(frozen=True, slots=True)
class History:
    """Figures of one series in one metric, in order; `label` is the kernel's where runs have several of them each.

    Every figure is finite and above zero; `unusable` counts, by what is wrong with them, boots whose figure is not.
    """

    series: IndexedSeries
    metric: Metric
    points: tuple[HistoryPoint, ...]
    label: str = ""
    unusable: Mapping[str, int] | None = None


class _Boots(NamedTuple):
    """Rows of one kernel in one run."""

    run: int
    kernel: int | None
    rows: list[Row]


def several_kernels(found: Iterable[NewestRows]) -> set[int]:
    """The runs that measured a series on more than one kernel."""
    several: set[int] = set()
    for series in found:
        seen: dict[int, int | None] = {}
        for row in series.rows:
            if seen.setdefault(row[RUN], row[KERNEL]) != row[KERNEL]:
                several.add(row[RUN])
    return several


def histories(
    found: NewestRows,
    metrics: Sequence[Metric],
    order: Order,
    *,
    kernels: Mapping[int, Kernel],
    labels: Labels,
    wanted: Sequence[Metric] | None = None,
) -> list[History]:
    """The histories of one series, for those metrics that it has; `metrics` are those of the rows.

    Without `wanted` these are throughput and energy, of timed operations duration and energy.
    """
    present = [
        metric for metric in metrics if any(row[FIGURES + metrics.index(metric)] is not None for row in found.rows)
    ]
    chosen = list(wanted or (TIMED if found.series.series.workload.partition("-")[0] in _TIMED_KINDS else FIO))
    made: list[History] = []
    for label, boots in _tracks(found.rows, labels if order is Order.TIME else {}).items():
        for metric in chosen:
            if metric in present:
                points, unusable = _points(boots, FIGURES + metrics.index(metric))
                if order is Order.KERNEL:
                    points = _by_kernel(points, kernels)
                made.append(History(found.series, metric, tuple(points), label, unusable))
    return made


def _tracks(rows: Sequence[Row], labels: Labels) -> dict[str, list[_Boots]]:
    """Rows by run and kernel. A run with several kernels has a point in the history of each, by the kernel's label."""
    groups: dict[tuple[int, int | None], _Boots] = {}
    for row in rows:
        key = (row[RUN], row[KERNEL])
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Boots(*key, [])
        group.rows.append(row)
    tracks: dict[str, list[_Boots]] = {}
    for (run, kernel), group in groups.items():
        label = labels.get((run, kernel), "") if kernel is not None else ""
        tracks.setdefault(label, []).append(group)
    return tracks


def _points(groups: Iterable[_Boots], place: int) -> tuple[list[HistoryPoint], dict[str, int]]:
    """One point a run; boots whose figure cannot be used are counted, runs without any other boot are left out."""
    points: list[HistoryPoint] = []
    unusable: dict[str, int] = {}
    for run, kernel, rows in groups:
        boots: list[float] = []
        for figure in one_per_boot([(row[BOOT], row[place]) for row in rows]):
            wrong = complaint(figure)
            if wrong is None and figure is not None:
                boots.append(figure)
            else:
                kind = str(wrong).partition(" (")[0]
                unusable[kind] = unusable.get(kind, 0) + 1
        if boots:
            points.append(HistoryPoint(run, kernel, rows[0][STARTED], statistics.median(boots), tuple(boots), 1))
    return points, unusable


def _by_kernel(points: Iterable[HistoryPoint], kernels: Mapping[int, Kernel]) -> list[HistoryPoint]:
    """One point a kernel, the oldest kernel first; what is of no known kernel is left out."""
    of_kernel: dict[int, list[HistoryPoint]] = {}
    for point in points:
        if point.kernel is not None:
            of_kernel.setdefault(point.kernel, []).append(point)
    in_order = sorted(of_kernel, key=lambda number: kernels[number].order)
    return [_merged(of_kernel[number]) for number in in_order]


def _merged(points: Sequence[HistoryPoint]) -> HistoryPoint:
    newest = points[-1]
    figure = statistics.median([point.figure for point in points])
    boots = tuple(boot for point in points for boot in point.boots)
    return HistoryPoint(newest.run, newest.kernel, newest.started_utc, figure, boots, len(points))


def interval(boots: Sequence[float]) -> tuple[float, float, float]:
    """Between which figures the median lies, and with what confidence: at least 95 % if the boots allow.

    The narrowest pair of equally distant order statistics that has 95 %, else all of the boots (Conover: Practical
    nonparametric statistics, 1999, chapter 3.2). Takes nothing for granted but that boots are independent.
    """
    ordered = sorted(boots)
    cut, confidence = _cut(len(ordered))
    return ordered[cut], ordered[-1 - cut], confidence


@cache
def _cut(count: int) -> tuple[int, float]:
    """How many figures lie outside of the interval on either side, and its confidence."""
    if count > _MANY:  # the binomial distribution is as good as normal
        return math.floor(count / 2 - 0.98 * math.sqrt(count)), _CONFIDENCE
    cut, outside = 0, 2 / 2**count
    while cut + 1 < count / 2 and outside + 2 * math.comb(count, cut + 1) / 2**count <= 1 - _CONFIDENCE:
        cut += 1
        outside += 2 * math.comb(count, cut) / 2**count
    return cut, max(0.0, 1 - outside)
