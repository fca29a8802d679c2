"""Histories as charts: all histories if there are few, else only changed ones."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from fsjoule.report.numbers import signed
from fsjoule.report.trend import words
from fsjoule.report.trend.document import published_figure
from fsjoule.report.trend.picture import Mark, Picture, Spot, history_chart
from fsjoule.store.index.records import Order
from fsjoule.verdicts.trend.changes import Change
from fsjoule.verdicts.trend.history import History, interval
from fsjoule.verdicts.trend.trend import Trend

_FEW: Final = 24
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9.]+")


def charts(trend: Trend) -> Iterator[tuple[str, str]]:
    """Names and SVGs of histories with a change, or of all if there are few. Works without the names of runs."""
    changes: dict[int, list[Change]] = {}
    for change in sorted(trend.changes, key=lambda each: each.nomination.index):
        changes.setdefault(id(change.history), []).append(change)
    for history in trend.histories:
        found = changes.get(id(history), [])
        if history.points and (found or len(trend.histories) <= _FEW):
            yield _name(history), history_chart(_picture(history, found, trend))


def _name(history: History) -> str:
    series = history.series
    parts = (series.series.board, series.label, history.metric.value, history.label, series.key[:8])
    return "-".join(_NO_NAME.sub("-", part) for part in parts if part)


def _picture(history: History, changes: Sequence[Change], trend: Trend) -> Picture:
    over_time = trend.order is Order.TIME
    edges = [0, *(change.nomination.index for change in changes), len(history.points)]
    figures = [point.figure for point in history.points]
    return Picture(
        title=f"{words.place(history)}: {history.metric.value}",
        simulated=history.series.simulated,
        unit=history.metric.unit,
        filesystem=history.series.series.filesystem,
        over_time=over_time,
        spots=[
            Spot(
                point.started_utc if over_time else words.kernel_text(point, trend),
                point.figure,
                *interval(point.boots)[:2],
            )
            for point in history.points
        ],
        marks=[
            Mark(change.nomination.index, change.status.value, change.worse, signed(change.ratio)) for change in changes
        ],
        levels=[statistics.median(figures[start:end]) for start, end in itertools.pairwise(edges)],
        published=published_figure(history),
    )
