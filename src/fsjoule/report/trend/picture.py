"""A history as SVG: points with intervals, levels, changes, and the published figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from fsjoule.report import style
from fsjoule.report.svg import Rows, draw, specification

_WIDTH: Final = 560
_HEIGHT: Final = 220
_POINTS, _LEVELS, _CHANGES, _PUBLISHED = "points", "levels", "changes", "published"
# A published figure farther away would flatten the history.
_NEAR: Final = (0.7, 1.4)
_DASHES: Final = {"confirmed": [1, 0], "nominated": [5, 4], "refuted": [1.5, 3]}


@dataclass(frozen=True, slots=True)
class Spot:
    """A point: a time in ISO 8601 or a kernel's name, the figure, and its interval."""

    at: str
    figure: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A change of level before the point `index`. `text` stands at its top."""

    index: int
    status: str
    worse: bool
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A history over time or over kernels; `levels` are those between its marks."""

    title: str
    simulated: bool
    unit: str
    filesystem: str
    over_time: bool
    spots: Sequence[Spot]
    marks: Sequence[Mark]
    levels: Sequence[float]
    published: float | None


def history_chart(picture: Picture) -> str:
    colour = style.filesystem_colours([picture.filesystem])[picture.filesystem]
    figures = [spot.figure for spot in picture.spots]
    near = picture.published is not None and (min(figures) * _NEAR[0] < picture.published < max(figures) * _NEAR[1])
    x = _x(picture)
    y = alt.Y("figure:Q", title=picture.unit or None, scale=alt.Scale(zero=False, nice=True, padding=12))
    layers = [
        _base(_POINTS).mark_rule(color=colour, opacity=0.4).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        _base(_LEVELS).mark_line(color=style.TEXT, strokeWidth=1.5, opacity=0.7).encode(x=x, y=y, detail="level:N"),
        _base(_POINTS).mark_circle(color=colour, opacity=1, size=26).encode(x=x, y=y),
    ]
    if near:
        layers.append(
            _base(_PUBLISHED).mark_rule(color=style.MUTED, strokeDash=[8, 4], strokeWidth=1.5).encode(y="figure:Q")
        )
    layers += [layer for status in _DASHES for layer in _marked(picture, status, x)]
    data: dict[str, Rows] = {
        _POINTS: [{"at": s.at, "figure": s.figure, "low": s.low, "high": s.high} for s in picture.spots],
        _LEVELS: _levels(picture),
        _CHANGES: [
            {
                "at": picture.spots[m.index].at,
                "status": m.status,
                "way": "worse" if m.worse else "better",
                "text": m.text,
            }
            for m in picture.marks
        ],
        _PUBLISHED: [{"figure": picture.published}] if near else [],
    }
    return draw(specification(*layers, width=_WIDTH, height=_HEIGHT), data, picture.title, simulated=picture.simulated)


def _base(name: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name))


def _x(picture: Picture) -> Any:  # noqa: ANN401 - an encoding of Altair's
    if picture.over_time:
        return alt.X("at:T", title=None, axis=alt.Axis(tickCount=6, grid=False, labelFlush=False))
    kernels = list(dict.fromkeys(spot.at for spot in picture.spots))
    return alt.X("at:N", title=None, sort=kernels, axis=alt.Axis(labelAngle=-40, labelOverlap=True, grid=False))


def _marked(picture: Picture, status: str, x: Any) -> list[alt.Chart]:  # noqa: ANN401
    """Lines of this status, and the texts at their tops."""
    if not any(mark.status == status for mark in picture.marks):
        return []
    colour = alt.Color("way:N", legend=None, scale=alt.Scale(domain=["worse", "better"], range=[style.BAD, style.GOOD]))
    of = _base(_CHANGES).transform_filter(f"datum.status === '{status}'")
    return [
        of.mark_rule(strokeDash=_DASHES[status], strokeWidth=1.5).encode(x=x, color=colour),
        of.mark_text(align="right", dx=-4, fontSize=11).encode(x=x, y=alt.value(6), text="text:N", color=colour),
    ]


def _levels(picture: Picture) -> Rows:
    edges = [0, *(mark.index for mark in picture.marks), len(picture.spots)]
    return [
        {"at": picture.spots[end].at, "figure": figure, "level": str(number)}
        for number, figure in enumerate(picture.levels)
        for end in (edges[number], edges[number + 1] - 1)
    ]
