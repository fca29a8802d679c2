"""Forest plots of findings: the change of each series with its interval, one plot per metric and one scale for all."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Final

import altair as alt

from fsjoule.model.metrics import Metric
from fsjoule.report import style
from fsjoule.report.svg import Rows, draw, specification, stacked
from fsjoule.report.table import shortened
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.finding import Finding, important_first

_WIDTH: Final = 300
_ROW: Final = 18
_LABEL: Final = 300
_LETTER: Final = 5.6
_MARGIN: Final = 0.2
_COLOURS: Final = {
    Outcome.REGRESSED: style.BAD,
    Outcome.IMPROVED: style.GOOD,
    Outcome.UNCHANGED: style.IDLE,
    Outcome.NOT_REGRESSED: style.IDLE,
    Outcome.NOT_REPRODUCIBLE: style.DOUBT,
    Outcome.TOO_FEW: style.DOUBT,
    Outcome.UNDECIDED: style.DOUBT,
}
_BETTER: Final = {True: "more is better", False: "less is better"}
NOTE: Final = (
    "Change of the candidate against the baseline in percent, with its 95 % interval, on one scale for all figures; an "
    "undecided interval may go on beyond the edge. Between the dashed lines no change matters. Red is worse, green is "
    "better, grey is equal; hollow points are undecided."
)

Findings = Sequence[Finding[object]]


def forest_charts(findings: Findings, *, simulated: bool) -> list[str]:
    """One SVG per metric that has a ratio, in the enumeration's order.

    A point is the ratio minus one in percent, a bar its 95 % interval; changes between the dashed lines do not matter.
    Filled points are decided, hollow points are not. All plots have the same scale.
    """
    return [
        draw(
            _plot(metric, rows, findings),
            {metric.value: rows},
            f"{metric.value.replace('-', ' ').capitalize()}: change, {_BETTER[metric.more_is_better]}",
            simulated=simulated,
        )
        for metric, rows in _plotted(findings)
    ]


def forest_chart(findings: Findings, title: str, *, simulated: bool) -> str | None:
    """The plots of all metrics below each other in one SVG; None without a ratio."""
    plotted = _plotted(findings)
    if not plotted:
        return None
    plots = stacked([_plot(metric, rows, findings) for metric, rows in plotted])
    return draw(plots, {metric.value: rows for metric, rows in plotted}, title, simulated=simulated)


def _plotted(findings: Findings) -> list[tuple[Metric, Rows]]:
    ordered = important_first(findings)
    return [(metric, rows) for metric in Metric if (rows := _rows(ordered, metric))]


def _plot(metric: Metric, rows: Rows, findings: Findings) -> dict[str, object]:
    matters = 100 * max(one.matters for one in findings if one.metric is metric)
    base = alt.Chart(alt.NamedData(metric.value))
    names = [str(row["series"]) for row in rows]
    # The same for all plots, so that plots and letters have one size.
    room = min(_LABEL, _LETTER * max(len(one.subject.name) for one in findings))
    # The range of all axes in percent: all points, decided intervals, and the changes that do not matter.
    ratios = [one.ratio for one in findings if one.ratio is not None]
    for one in findings:
        ratios += [1 - one.matters, 1 + one.matters]
        ratios += [one.interval.low, one.interval.high] if one.interval and not one.undecided else []
    low, high = 100 * (min(ratios) - 1), 100 * (max(ratios) - 1)
    margin = max(0.05 * (high - low), _MARGIN)
    scale = alt.Scale(domain=[math.floor(low - margin), math.ceil(high + margin)], nice=True)
    axis = alt.Axis(tickCount=5, domain=False, labelFlush=False, format="~f")
    x = alt.X("change:Q", title=f"{metric.value}, change in %", scale=scale, axis=axis)
    # Long names differ at their ends, which Vega would cut off.
    short = {name: shortened(name, int(_LABEL / _LETTER)) for name in names}
    label = f"{json.dumps(short)}[datum.value]"
    axis_of_names = alt.Axis(labelExpr=label, labelLimit=_LABEL, minExtent=room, domain=False)
    y = alt.Y("series:N", sort=names, title=None, axis=axis_of_names)
    outcomes = list(_COLOURS)
    colour = alt.Color(
        "outcome:N",
        scale=alt.Scale(domain=[o.value for o in outcomes], range=[_COLOURS[o] for o in outcomes]),
        legend=None,
    )
    lines = [_line(base, 0.0, []), _line(base, matters, [3, 3]), _line(base, -matters, [3, 3])]
    intervals = base.mark_rule(strokeWidth=2, clip=True).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour)
    filled = base.transform_filter("datum.decided == 1").mark_point(filled=True, size=70, opacity=1)
    hollow = base.transform_filter("datum.decided == 0").mark_point(filled=False, size=60, opacity=1)
    points = [mark.encode(x=x, y=y, color=colour) for mark in (filled, hollow)]
    return specification(*lines, intervals, *points, width=_WIDTH, height=len(set(names)) * _ROW)


def _line(base: alt.Chart, at: float, dash: list[int]) -> alt.Chart:
    return base.mark_rule(color=style.AXIS, strokeDash=dash, aria=False).encode(x=alt.datum(at))


def _rows(findings: Findings, metric: Metric) -> Rows:
    return [
        {
            "series": one.subject.name,
            "outcome": one.outcome.value,
            "decided": float(not one.undecided),
            "change": 100 * (ratio - 1),
            "low": 100 * ((one.interval.low if one.interval else ratio) - 1),
            "high": 100 * ((one.interval.high if one.interval else ratio) - 1),
        }
        for one in findings
        if one.metric is metric and (ratio := one.ratio) is not None
    ]
