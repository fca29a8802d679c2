"""Histories as SVG: points with intervals, levels, changes, and the published figure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import altair as alt

from fsjoule.model.series import Order
from fsjoule.report import style
from fsjoule.report.numbers import signed
from fsjoule.report.svg import Rows, draw, specification
from fsjoule.report.trend import words
from fsjoule.report.trend.document import published_figure
from fsjoule.verdicts.trend.changes import ChangeStatus, LevelChange
from fsjoule.verdicts.trend.history import History, interval
from fsjoule.verdicts.trend.trend import Trend

_FEW: Final = 24
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9.]+")
_WIDTH: Final = 560
_HEIGHT: Final = 220
_POINTS, _LEVELS, _CHANGES, _PUBLISHED = "points", "levels", "changes", "published"
_DASHES: Final = {ChangeStatus.CONFIRMED: [1, 0], ChangeStatus.NOMINATED: [5, 4], ChangeStatus.REFUTED: [1.5, 3]}


def charts(trend: Trend) -> Iterator[tuple[str, str]]:
    """Names and SVGs of histories with a change, or of all if there are few. Works without the names of runs."""
    for history, changes in trend.with_changes():
        if history.points and (changes or len(trend.histories) <= _FEW):
            series = history.series
            parts = (series.series.board, series.label, history.metric.value, history.label, series.key[:8])
            yield "-".join(_NO_NAME.sub("-", part) for part in parts if part), _chart(history, changes, trend)


def _chart(history: History, changes: Sequence[LevelChange], trend: Trend) -> str:
    over_time = trend.order is Order.TIME
    at = [point.started_utc if over_time else words.kernel_text(point, trend) for point in history.points]
    figures = [point.figure for point in history.points]
    published = published_figure(history)
    if published is not None and not min(figures) < published < max(figures):
        published = None  # it would stretch the axis
    filesystem = history.series.series.filesystem
    colour = style.filesystem_colours([filesystem])[filesystem]
    x = _x(at, over_time=over_time)
    y = alt.Y("figure:Q", title=history.metric.unit or None, scale=alt.Scale(zero=False, nice=True, padding=12))
    layers = [
        _base(_POINTS).mark_rule(color=colour, opacity=0.4).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        _base(_LEVELS).mark_line(color=style.TEXT, strokeWidth=1.5, opacity=0.7).encode(x=x, y=y, detail="level:N"),
        _base(_POINTS).mark_circle(color=colour, opacity=1, size=26).encode(x=x, y=y),
    ]
    if published is not None:
        line = _base(_PUBLISHED).mark_rule(color=style.MUTED, strokeDash=[8, 4], strokeWidth=1.5)
        layers.append(line.encode(y="figure:Q"))
    layers += [layer for status in _DASHES for layer in _marked(changes, status, x)]
    data: dict[str, Rows] = {
        _POINTS: [
            {"at": place, "figure": point.figure, **dict(zip(("low", "high"), interval(point.boots), strict=False))}
            for place, point in zip(at, history.points, strict=True)
        ],
        _LEVELS: _levels(at, figures, changes),
        _CHANGES: [
            {
                "at": at[change.nomination.index],
                "status": change.status.value,
                "way": "worse" if change.worse else "better",
                "text": signed(change.ratio),
            }
            for change in changes
        ],
        _PUBLISHED: [] if published is None else [{"figure": published}],
    }
    title = f"{words.place(history)}: {history.metric.value}"
    spec = specification(*layers, width=_WIDTH, height=_HEIGHT)
    return draw(spec, data, title, simulated=history.series.simulated)


def _base(name: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name))


def _x(at: Sequence[str], *, over_time: bool) -> Any:  # noqa: ANN401 - an encoding of Altair's
    if over_time:
        return alt.X("at:T", title=None, axis=alt.Axis(tickCount=6, grid=False, labelFlush=False))
    axis = alt.Axis(labelAngle=-40, labelOverlap=True, grid=False)
    return alt.X("at:N", title=None, sort=list(dict.fromkeys(at)), axis=axis)


def _marked(changes: Sequence[LevelChange], status: ChangeStatus, x: Any) -> list[alt.Chart]:  # noqa: ANN401
    """Lines of this status, and the texts at their tops."""
    if not any(change.status is status for change in changes):
        return []
    scale = alt.Scale(domain=["worse", "better"], range=[style.BAD, style.GOOD])
    colour = alt.Color("way:N", legend=None, scale=scale)
    of = _base(_CHANGES).transform_filter(f"datum.status === '{status.value}'")
    return [
        of.mark_rule(strokeDash=_DASHES[status], strokeWidth=1.5).encode(x=x, color=colour),
        of.mark_text(align="right", dx=-4, fontSize=11).encode(x=x, y=alt.value(6), text="text:N", color=colour),
    ]


def _levels(at: Sequence[str], figures: Sequence[float], changes: Sequence[LevelChange]) -> Rows:
    """The median between changes, from the first of its points to the last."""
    edges = [0, *(change.nomination.index for change in changes), len(figures)]
    return [
        {"at": at[place], "figure": statistics.median(figures[start:end]), "level": str(number)}
        for number, (start, end) in enumerate(pairwise(edges))
        for place in (start, end - 1)
    ]
