"""Places that drift: the table of their control charts, the charts as SVG, and a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

import altair as alt
import numpy as np

from fsjoule.report import style
from fsjoule.report.svg import Rows, draw, specification, stacked
from fsjoule.report.table import Cell, Column, Table, Tone, listing, word
from fsjoule.statistics.control import LEAST_CHECKS, Level
from fsjoule.store.states import Restart
from fsjoule.verdicts.drift import Agreement, Control, PlaceChart, place_states, place_text

SCHEMA: Final = "fsjoule.drift/1"
_WIDTH: Final = 560
_HEIGHT: Final = 150
_TONES: Final = {Control.IN: Tone.GOOD, Control.OUT: Tone.BAD, Control.UNKNOWN: Tone.PLAIN}


def drift_table(charts: Sequence[PlaceChart], *, history: bool = False) -> Table:
    """One row per place and current figure, with `history` also for earlier charts.

    `spread` is of single checks, `off` counts those that were off alone.
    """
    columns = (
        word("place"),
        word("work"),
        word("figure"),
        Column("checks"),
        word("state"),
        Column("level", optional=True),
        Column("spread", optional=True),
        Column("off", optional=True),
        word("since", optional=True),
        word("meter", optional=True),
    )
    return listing(columns, [_row(each, charts) for each in charts if each.current or history])


def notes(restarts: Iterable[Restart], found: Iterable[Agreement], *, history: bool = False) -> list[str]:
    """`note  bench-3: begun anew 2026-11-30, shunt replaced`: a place's last restart, with `history` all of them."""
    lines = {
        (each.place, each.exporter, each.made_utc if history else ""): (
            f"note  {each.place}: begun anew {each.made_utc[:10]}, {each.why}"
        )
        for each in restarts
    }
    same = any(each.same_meter for each in found)
    return [*lines.values(), *["note  one meter measured both places: E_n is too small"] * same]


def _row(one: PlaceChart, charts: Iterable[PlaceChart]) -> tuple[str | Cell, ...]:
    return (
        _name(one, charts),
        one.work,
        str(one.metric),
        str(len(one.times)),
        Cell(state_text(one), tone=_TONES[one.state]),
        f"{one.drawn.level:.5g} {one.metric.unit}",
        f"{100 * one.drawn.spread:.2f} %",
        str(one.drawn.outliers),
        one.times[0][:10],
        one.conditions.meter,
    )


def _name(one: PlaceChart, charts: Iterable[PlaceChart]) -> str:
    """The place's name, with its exporter if another lab has a place of that name."""
    several = any(each.place.name == one.place.name and each.place != one.place for each in charts)
    return place_text(one.place) if several else one.place.name


def state_text(one: PlaceChart) -> str:
    """`in control`; `out of control since 2026-11-02: +0.8 %`; `too few checks: 5 of 8`; `in control until DAY`."""
    if one.state is Control.OUT:
        doubt = one.doubts[-1]
        return f"{Control.OUT} since {doubt.begin_utc[:10]}: {doubt.text}{_until(one)}"
    if not one.current:
        return f"{one.state}{_until(one)}"
    return f"{Control.UNKNOWN}: {len(one.times)} of {LEAST_CHECKS}" if one.state is Control.UNKNOWN else str(one.state)


def _until(one: PlaceChart) -> str:
    return "" if one.ended_utc is None else f" until {one.ended_utc[:10]}"


def agreement_table(found: Iterable[Agreement], one: str, other: str) -> Table:
    """One row per figure: both levels with their expanded uncertainties (k=2), and E_n."""
    columns = (word("figure"), Column(one), Column(other), Column("E_n"), word("agree"))
    rows = [
        (
            f"{each.metric} of {each.work}",
            _level(each.one, each.metric.unit),
            _level(each.other, each.metric.unit),
            f"{each.error:+.2f}",
            Cell("yes", tone=Tone.GOOD) if each.agree else Cell("no", tone=Tone.BAD),
        )
        for each in found
    ]
    return listing(columns, rows)


def _level(level: Level, unit: str) -> str:
    return f"{level.value:.4f} ± {2 * level.uncertainty:.4f} {unit}"


def to_document(
    charts: Sequence[PlaceChart], found: Sequence[Agreement] = (), restarts: Sequence[Restart] = ()
) -> dict[str, Any]:
    """States of places, every chart with its checks, restarts, and agreements."""
    return {
        "schema": SCHEMA,
        "places": [
            {
                "place": place.name,
                "exporter": place.exporter,
                "state": state,
                "doubts": [{"figure": each.chart.figure, "since": each.begin_utc, "text": each.text} for each in open_],
            }
            for place, state, open_ in place_states(charts)
        ],
        "charts": [_chart_document(each) for each in charts],
        "restarts": [asdict(each) for each in restarts],
        "agreements": [
            {
                "metric": each.metric,
                "work": each.work,
                "levels": [each.one.value, each.other.value],
                "uncertainties": [each.one.uncertainty, each.other.uncertainty],
                "e_n": each.error,
                "agree": each.agree,
                "same_meter": each.same_meter,
            }
            for each in found
        ],
    }


def _chart_document(one: PlaceChart) -> dict[str, Any]:
    drawn, kernel = one.drawn, one.conditions.kernel
    return {
        "place": one.place.name,
        "exporter": one.place.exporter,
        "work": one.work,
        "metric": one.metric,
        "unit": one.metric.unit,
        "series": one.conditions.series.key,
        "kernel": kernel.label if kernel else None,
        "meter": one.conditions.meter,
        "current": one.current,
        "ended": one.ended_utc,
        "state": one.state,
        "level": drawn.level,
        "spread": drawn.spread,
        "limits": {"single": drawn.limits.single, "average": drawn.limits.average},
        "alarms": [
            {
                "rule": each.alarm.rule,
                "signalled": one.times[each.alarm.signalled],
                "begin": each.begin_utc,
                "end": each.end_utc,
                "shift": each.alarm.shift,
            }
            for each in one.doubts
        ],
        "checks": [
            {"run": run, "time": time, "figure": figure, "q": _finite(q), "average": _finite(average)}
            for run, time, figure, q, average in zip(
                one.runs, one.times, drawn.figures.tolist(), drawn.q.tolist(), drawn.average.tolist(), strict=True
            )
        ],
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def drift_charts(charts: Sequence[PlaceChart]) -> str:
    """An SVG of all current charts below each other: checks over time, their level and limits, and begins of shifts."""
    current = [each for each in charts if each.current]
    data: dict[str, Rows] = {}
    drawn: list[dict[str, object]] = []
    for number, one in enumerate(current):
        names = [f"{kind}{number}" for kind in ("checks", "alarms")]
        data |= dict(zip(names, (_points(one), _alarms(one)), strict=True))
        drawn.append(_drawn(one, _name(one, charts), *names))
    simulated = any(each.conditions.series.simulated for each in current)
    return draw(stacked(drawn), data, "Check standards of places", simulated=simulated)


def _points(one: PlaceChart) -> Rows:
    drawn, (lowest, highest) = one.drawn, _range(one)
    # The first limits are so wide that a drawing program fails.
    arrays = (drawn.figures, drawn.centre, np.maximum(drawn.low, lowest), np.minimum(drawn.high, highest))
    return [
        {"at": at, "figure": figure, "centre": _finite(centre), "low": _finite(low), "high": _finite(high)}
        for at, figure, centre, low, high in zip(one.times, *(each.tolist() for each in arrays), strict=True)
    ]


def _range(one: PlaceChart) -> tuple[float, float]:
    """The figures that are drawn."""
    figures = one.drawn.figures
    half = 1.5 * float(np.ptp(figures)) or 1e-3 * float(figures[0])
    return float(np.median(figures)) - half, float(np.median(figures)) + half


def _alarms(one: PlaceChart) -> Rows:
    return [{"at": each.begin_utc, "text": each.text} for each in one.doubts if each.alarm.lasts]


def _drawn(one: PlaceChart, place: str, checks: str, alarms: str) -> dict[str, object]:
    x = alt.X("at:T", title=None, axis=alt.Axis(tickCount=6, grid=False, labelFlush=False))
    scale = alt.Scale(domain=[*_range(one)], zero=False, nice=False)
    y = alt.Y("figure:Q", title=f"{one.metric}, {one.metric.unit}", scale=scale)
    of_checks, of_alarms = (alt.Chart(alt.NamedData(name)) for name in (checks, alarms))
    band = of_checks.mark_area(color=style.BAND, opacity=0.12, clip=True)
    layers = [
        band.encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q"),
        of_checks.mark_line(color=style.TEXT, strokeWidth=1, opacity=0.7, clip=True).encode(x=x, y="centre:Q"),
        of_checks.mark_circle(color=style.BAND, opacity=1, size=22).encode(x=x, y=y),
        of_alarms.mark_rule(color=style.BAD, strokeWidth=1.5).encode(x=x),
        of_alarms.mark_text(color=style.BAD, align="left", dx=4, fontSize=11).encode(
            x=x, y=alt.value(8), text="text:N"
        ),
    ]
    return {
        **specification(*layers, width=_WIDTH, height=_HEIGHT),
        "title": f"{place}: {one.figure}, {state_text(one)}",
    }
