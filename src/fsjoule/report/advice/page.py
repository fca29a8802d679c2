"""The self-contained page of advice: one file, no network, no scripts."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Final

import altair as alt

from fsjoule.report import style
from fsjoule.report.advice import words
from fsjoule.report.advice.tables import tables
from fsjoule.report.finding_views import run_links
from fsjoule.report.svg import Rows, draw, specification
from fsjoule.report.template import marked_up, render
from fsjoule.verdicts.advice.advise import Advice, Axis, on_axis


def render_page(advice: Advice, file: Path) -> str:
    """The page as HTML; `file` is its place, from which it links to its runs."""
    figures, *others = tables(advice) or [None]
    # For each pair of axes that at least two filesystems have; the best is at the bottom left.
    pairs = ((Axis.ENERGY, Axis.LOSS), (Axis.ENERGY, Axis.WAIT), (Axis.WAIT, Axis.LOSS))
    drawn = (_trade_off(advice, across, up) for across, up in pairs)
    return render(
        "advice.html.j2",
        version=version("fsjoule"),
        simulated=advice.evidence.simulated,
        title=words.title(advice),
        profile=advice.profile.title,
        headline=words.headline(advice),
        figures=figures,
        others=others,
        rules=words.rules(advice),
        charts=marked_up([chart for chart in drawn if chart is not None]),
        missing=words.missing(advice),
        notes=words.notes(advice),
        sections={
            "Ruled out": words.ruled_out(advice),
            "Which is less": words.relations(advice),
            "The question": words.facts(advice),
            "Damaged, left out": list(advice.evidence.damaged.items()),
        },
        links=run_links(advice.evidence.runs, file),
    )


_WIDTH: Final = 330
_HEIGHT: Final = 210
_DATA: Final = "points"
_SHAPES: Final = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down")
_AXES: Final = {
    Axis.ENERGY: ("energy, J a day", 1.0),
    Axis.LOSS: ("files lost a year", 1.0),
    Axis.WAIT: ("wait (p99), ms", 1e3),
    Axis.WEAR: ("written, MiB a day", 1.0),
    Axis.MOUNT: ("mount after a cut, ms", 1e3),
}


def _trade_off(advice: Advice, across: Axis, up: Axis) -> str | None:
    rows = _rows(advice, across, up)
    if len(rows) < 2:  # noqa: PLR2004 - a trade-off is between two
        return None
    labels = [str(row["filesystem"]) for row in rows]
    colours = style.filesystem_colours([one.label for one in advice.figures])
    # One scale of shapes in all pictures, so that a filesystem keeps its own.
    shapes = {one.label: _SHAPES[i % len(_SHAPES)] for i, one in enumerate(advice.figures)}
    legend = alt.Legend(orient="top", direction="horizontal", columns=3, symbolOpacity=1)
    base = alt.Chart(alt.NamedData(_DATA)).encode(
        color=alt.Color(
            "filesystem:N",
            title=None,
            scale=alt.Scale(domain=labels, range=[colours[label] for label in labels]),
            legend=legend,
        )
    )
    axis = alt.Axis(tickCount=5, domain=False, labelFlush=False)
    x = alt.X("x:Q", title=_AXES[across][0], scale=alt.Scale(zero=across is Axis.LOSS, nice=True), axis=axis)
    y = alt.Y("y:Q", title=_AXES[up][0], scale=alt.Scale(zero=up is Axis.LOSS, nice=True), axis=axis)
    shape = alt.Shape(
        "filesystem:N",
        title=None,
        scale=alt.Scale(domain=labels, range=[shapes[label] for label in labels]),
        legend=legend,
    )
    layers = (
        base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(x="x_low:Q", x2="x_high:Q", y=y),
        base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(x=x, y="y_low:Q", y2="y_high:Q"),
        base.mark_point(filled=True, size=110, opacity=1).encode(x=x, y=y, shape=shape),
    )
    title = f"{_AXES[across][0].split(',')[0].capitalize()} against {_AXES[up][0].split(',')[0]}"
    spec = specification(*layers, width=_WIDTH, height=_HEIGHT)
    return draw(spec, {_DATA: rows}, title, simulated=advice.evidence.simulated)


def _rows(advice: Advice, across: Axis, up: Axis) -> Rows:
    rows: Rows = []
    for one in advice.figures:
        x, y = on_axis(one, across), on_axis(one, up)
        if x is None or y is None:
            continue
        of_x, of_y = _AXES[across][1], _AXES[up][1]
        rows.append(
            {
                "filesystem": one.label,
                "x": of_x * x.value,
                "x_low": of_x * x.low,
                "x_high": of_x * x.high,
                "y": of_y * y.value,
                "y_low": of_y * y.low,
                "y_high": of_y * y.high,
            }
        )
    return rows
