"""The picture of read-only images: size against the energy of a boot, with a line through those that none beats."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Final

import altair as alt

from fsjoule.report import style
from fsjoule.report.images import ImageRow
from fsjoule.report.svg import Rows, draw, specification

WIDE: Final = 640
NARROW: Final = 250
_HEIGHT: Final = 300
_MARGIN: Final = 0.08
_LETTER: Final = 6.2
_LINE: Final = 14
_OFFSET: Final = 9
# What a point says when a pointer is over it: browsers show an element's title.
_POINT: Final = re.compile(r'(<path aria-label="([^"]*)" role="graphics-symbol"[^>]*?)/>')


def pareto_chart(rows: Sequence[ImageRow], *, width: int, simulated: bool) -> str:
    """The images as points: bold and joined if none beats them, else pale. A label that would hide another is left out.

    Both axes begin near the least figure: the picture is about differences.
    """
    sizes, energies = _domain([row.size_mib for row in rows]), _domain([row.boot_mj for row in rows])
    labels = _labels(rows, sizes, energies, width)
    data: Rows = [
        {
            "label": labels[row.label][0],
            "side": labels[row.label][1],
            "size": row.size_mib,
            "energy": row.boot_mj,
            "front": "pale" if row.beaten_by else "front",
            "told": f"{row.label}: {row.size_mib:.2f} MiB, {row.boot_mj:.1f} mJ for a boot"
            + (f"; beaten by {row.beaten_by}" if row.beaten_by else "; none beats it"),
        }
        for row in rows
    ]
    base = alt.Chart(alt.NamedData("images"))
    x = alt.X("size:Q", title="size on the medium, MiB", scale=alt.Scale(domain=sizes, nice=False), axis=_axis())
    y = alt.Y("energy:Q", title="energy of a boot, mJ", scale=alt.Scale(domain=energies, nice=False), axis=_axis())
    front = base.transform_filter("datum.front == 'front'")
    pale = base.transform_filter("datum.front == 'pale'")
    line = front.mark_line(color=style.BAND, strokeWidth=1.5, interpolate="step-after", aria=False)
    layers = [line.encode(x=x, y=y, order="size:Q")]
    for points, colour, size in ((pale, style.AXIS, 55), (front, style.BAND, 90)):
        told = {"x": x, "y": y, "description": alt.Description("told:N")}
        layers.append(points.mark_point(filled=True, opacity=1, color=colour, size=size).encode(**told))
    for points, colour, weight in ((pale, style.MUTED, "normal"), (front, style.TEXT, "bold")):
        for side, align in ((1, "left"), (-1, "right")):
            text = points.transform_filter(f"datum.side == {side}").mark_text(
                *(), align=align, dx=side * _OFFSET, color=colour, fontSize=11, fontWeight=weight, aria=False
            )
            layers.append(text.encode(x=x, y=y, text="label:N"))
    spec = specification(*layers, width=width, height=_HEIGHT)
    drawn = draw(spec, {"images": data}, "Size against the energy of a boot", simulated=simulated)
    return _POINT.sub(lambda found: f"{found[1]}><title>{html.escape(html.unescape(found[2]))}</title></path>", drawn)


def _axis() -> alt.Axis:
    return alt.Axis(tickCount=5, domain=False, labelFlush=False, format="~f")


def _domain(values: Sequence[float]) -> list[float]:
    margin = _MARGIN * (max(values) - min(values)) or _MARGIN * max(values) or 1.0
    return [max(0.0, min(values) - margin), max(values) + margin]


def _labels(
    rows: Sequence[ImageRow], sizes: Sequence[float], energies: Sequence[float], width: int
) -> dict[str, tuple[str, float]]:
    """The label of each point, and its side (1: right, -1: left): empty if it has room on neither.

    Those that none beats get theirs first.
    """

    def place(row: ImageRow) -> tuple[float, float]:
        across = (row.size_mib - sizes[0]) / (sizes[1] - sizes[0])
        up = (row.boot_mj - energies[0]) / (energies[1] - energies[0])
        return across * width, (1 - up) * _HEIGHT

    points = [place(row) for row in rows]
    taken = [(x - _OFFSET, y - _LINE / 2, x + _OFFSET, y + _LINE / 2) for x, y in points]
    labels: dict[str, tuple[str, float]] = {}
    for row, (x, y) in sorted(zip(rows, points, strict=True), key=lambda each: bool(each[0].beaten_by)):
        labels[row.label] = ("", 1.0)
        for side in (1, -1):
            ends = sorted((x + side * (_OFFSET + 0.1), x + side * (_OFFSET + _LETTER * len(row.label))))
            box = (ends[0], y - _LINE / 2, ends[1], y + _LINE / 2)
            own = (x - _OFFSET, y - _LINE / 2, x + _OFFSET, y + _LINE / 2)
            if box[0] >= 0 and box[2] <= width and not any(_overlap(box, each) for each in taken if each != own):
                labels[row.label] = (row.label, float(side))
                taken.append(box)
                break
    return labels


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
