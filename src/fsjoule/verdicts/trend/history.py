"""Makes histories from the rows of an index: one figure per run or per kernel, in order. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric, metrics_of_series
from fsjoule.model.series import Order, Series
from fsjoule.statistics.figures import complaint, one_per_boot
from fsjoule.statistics.memory import Memory
from fsjoule.store.trend_rows import BOOT, FIGURES, KERNEL, RUN, STARTED, USUAL, Labels, NewestRows, Row

_CONFIDENCE: Final = 0.95  # of a median's interval, if there are enough boots
_MANY: Final = 500


class HistoryPoint(NamedTuple):
    """One run or one kernel of a series with its figure: the median over its boots, or over its runs.

    `boots` are the figures of all boots behind it. `run` is the newest run; `run` and `kernel` are numbers in the
    index. A tuple, because there are tens of thousands of points.
    """

    run: int
    kernel: int | None
    started_utc: str
    figure: float
    boots: tuple[float, ...]
    runs: int


@dataclass(frozen=True, slots=True)
class History:
    """Usable figures of one series and metric, in order; `label` is a kernel's, `unusable` counts boots by reason.

    `memory` is known once the history has been judged, unless it is too short.
    """

    series: Series
    metric: Metric
    points: tuple[HistoryPoint, ...]
    label: str = ""
    unusable: Mapping[str, int] | None = None
    memory: Memory | None = None


class _Boots(NamedTuple):
    """Rows of one kernel in one run."""

    run: int
    kernel: int | None
    rows: list[Row]


def histories(
    found: NewestRows,
    metrics: Sequence[Metric],
    order: Order,
    *,
    kernels: Mapping[int, Kernel],
    labels: Labels,
    wanted: Sequence[Metric] | None = None,
) -> list[History]:
    """The histories of one series in the metrics that it has; `metrics` are the metrics of the rows.

    `wanted` defaults to throughput and energy, for timed operations to duration and energy.
    """
    present = [
        metric for metric in metrics if any(row[FIGURES + metrics.index(metric)] is not None for row in found.rows)
    ]
    usual = metrics_of_series(found.series.series.workload)
    chosen = list(wanted or [metric for metric in USUAL if metric in usual])
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
    """Rows by run and kernel, grouped by kernel's label, because each kernel of such runs has its own history."""
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
    """One point per run with a usable boot, and counts of unusable boots by reason."""
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
    """One point per known kernel, oldest first."""
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
    """The bounds of the median, and their confidence: at least 95 % if there are enough boots.

    The narrowest symmetric pair of order statistics with 95 %, else the extremes (Conover: Practical nonparametric
    statistics, 1999, chapter 3.2). It assumes only independent boots.
    """
    ordered = sorted(boots)
    cut, confidence = _cut(len(ordered))
    return ordered[cut], ordered[-1 - cut], confidence


@cache
def _cut(count: int) -> tuple[int, float]:
    """The number of figures outside the interval on either side, and its confidence."""
    if count > _MANY:  # the binomial distribution is as good as normal
        return math.floor(count / 2 - 0.98 * math.sqrt(count)), _CONFIDENCE
    cut, outside = 0, 2 / 2**count
    while cut + 1 < count / 2 and outside + 2 * math.comb(count, cut + 1) / 2**count <= 1 - _CONFIDENCE:
        cut += 1
        outside += 2 * math.comb(count, cut) / 2**count
    return cut, max(0.0, 1 - outside)
