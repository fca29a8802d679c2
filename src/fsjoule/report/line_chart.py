"""Figures against a number as SVG: throughput against threads or block sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import altair as alt

from fsjoule.report.svg import draw, specification
from fsjoule.statistics.spread import Spread

_WIDTH: Final = 330
_HEIGHT: Final = 190
_DATA: Final = "points"


@dataclass(frozen=True, slots=True)
class Dot:
    """A figure at `x`, on the line of its label."""

    label: str
    x: float
    figure: Spread


def line_chart(
    title: str,
    axes: tuple[str, str],
    points: Sequence[Dot],
    colours: Mapping[str, str],
    *,
    simulated: bool,
    name: Callable[[float], str] = "{:g}".format,
) -> str | None:
    """One line per label over a logarithmic x; None for fewer than two x. `axes` are titles, `name` labels an x."""
    values = sorted({point.x for point in points})
    if len(values) < 2:  # noqa: PLR2004 - a line needs two
        return None
    present = {point.label for point in points}
    labels = [label for label in colours if label in present]
    base = alt.Chart(alt.NamedData(_DATA))
    shown = " : ".join(f"datum.value == {x:.17g} ? '{name(x)}'" for x in values)
    axis = alt.Axis(values=values, grid=False, labelOverlap=True, labelExpr=f"{shown} : ''")
    x = alt.X("x:Q", title=axes[0], scale=alt.Scale(type="log", base=2, nice=False, padding=14), axis=axis)
    y = alt.Y("mean:Q", title=axes[1], scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(tickCount=5, domain=False))
    colour = alt.Color(
        "label:N",
        title=None,
        scale=alt.Scale(domain=labels, range=[colours[label] for label in labels]),
        legend=alt.Legend(orient="top", direction="horizontal", columns=4, symbolOpacity=1),
    )
    layers = (
        base.mark_rule(strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour),
        base.mark_circle(size=34, opacity=1).encode(x=x, y=y, color=colour),
    )
    rows = [_datum(point) for point in points]
    return draw(specification(*layers, width=_WIDTH, height=_HEIGHT), {_DATA: rows}, title, simulated=simulated)


def _datum(point: Dot) -> dict[str, str | float | None]:
    sd = point.figure.sd or 0.0
    mean = point.figure.mean
    return {"label": point.label, "x": point.x, "mean": mean, "low": mean - sd, "high": mean + sd}
