"""The picture of read-only images: size against the energy of a boot, with a line through those that none beats."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import altair as alt

from fsjoule.report import style
from fsjoule.report.images import ImageRow
from fsjoule.report.svg import Rows, draw, specification

WIDE: Final = 640
NARROW: Final = 250
_HEIGHT: Final = 300
_MARGIN: Final = 0.08
_LETTER: Final = 6.6
_LINE: Final = 13
_POINT: Final = 7
# From this ratio on an axis is logarithmic: the small ones would lie on each other.
_WIDE_RATIO: Final = 4.0
# Where a label may be, of its point: below and to the left of the line there is nothing else.
_PLACES: Final = ((-1, 1), (1, -1), (1, 0), (-1, 0), (1, 1), (-1, -1), (0, 1), (0, -1))
# What a point says when a pointer is over it: browsers show an element's title.
_TOLD: Final = re.compile(r'(<path aria-label="([^"]*)" role="graphics-symbol"[^>]*?)/>')

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """An axis: values at its ends, its pixels, and whether it is logarithmic."""

    low: float
    high: float
    pixels: float
    log: bool

    @classmethod
    def of(cls, values: Sequence[float], pixels: float) -> _Scale:
        least, most = min(values), max(values)
        if least > 0 and most / least > _WIDE_RATIO:
            margin = (most / least) ** _MARGIN
            return cls(least / margin, most * margin, pixels, log=True)
        margin = _MARGIN * (most - least) or _MARGIN * most or 1.0
        return cls(max(0.0, least - margin), most + margin, pixels, log=False)

    def at(self, value: float) -> float:
        """The pixel of a value, from the low end."""
        if self.log:
            return self.pixels * math.log(value / self.low) / math.log(self.high / self.low)
        return self.pixels * (value - self.low) / (self.high - self.low)

    def value(self, pixel: float) -> float:
        share = pixel / self.pixels
        return self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low)

    @property
    def drawn(self) -> alt.Scale:
        return alt.Scale(domain=[self.low, self.high], nice=False, type="log" if self.log else "linear")

    @property
    def axis(self) -> alt.Axis:
        if not self.log:
            return alt.Axis(tickCount=5, domain=False, labelFlush=False, format="~f")
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
        ticks = [first * 10.0**power for power in powers for first in (1, 2, 5)]
        return alt.Axis(values=[each for each in ticks if self.low <= each <= self.high], domain=False, format="~f")


def pareto_chart(rows: Sequence[ImageRow], *, width: int, simulated: bool) -> str:
    """The images as points: bold and joined if none beats them, else pale. A label that would hide another is left out.

    Both axes begin near the least figure: the picture is about differences.
    """
    size, energy = _Scale.of([row.size_mib for row in rows], width), _Scale.of([row.boot_mj for row in rows], _HEIGHT)
    labels = _labels(rows, size, energy)
    points: Rows = [
        {
            "size": row.size_mib,
            "energy": row.boot_mj,
            "front": float(not row.beaten_by),
            "told": f"{row.label}: {row.size_mib:.2f} MiB, {row.boot_mj:.1f} mJ for a boot; "
            + (f"beaten by {row.beaten_by}" if row.beaten_by else "none beats it"),
        }
        for row in rows
    ]
    texts: Rows = [
        {
            "label": row.label,
            "front": float(not row.beaten_by),
            "size": size.value(labels[row.label][0]),
            "energy": energy.value(_HEIGHT - (labels[row.label][1] + labels[row.label][3]) / 2),
        }
        for row in rows
        if row.label in labels
    ]
    x = alt.X("size:Q", title="size on the medium, MiB", scale=size.drawn, axis=size.axis)
    y = alt.Y("energy:Q", title="energy of a boot, mJ", scale=energy.drawn, axis=energy.axis)
    drawn, named = alt.Chart(alt.NamedData("images")), alt.Chart(alt.NamedData("labels"))
    front = drawn.transform_filter("datum.front == 1")
    line = front.mark_line(color=style.BAND, strokeWidth=1.5, interpolate="step-after", aria=False)
    layers = [line.encode(x=x, y=y, order="size:Q")]
    for at_front, colour, area in ((0, style.AXIS, 55), (1, style.BAND, 90)):
        some = drawn.transform_filter(f"datum.front == {at_front}")
        point = some.mark_point(filled=True, opacity=1, color=colour, size=area)
        layers.append(point.encode(x=x, y=y, description=alt.Description("told:N")))
    for at_front, colour in ((0, style.MUTED), (1, style.TEXT)):
        some = named.transform_filter(f"datum.front == {at_front}")
        text = some.mark_text(align="left", color=colour, fontSize=11, fontWeight=700 if at_front else 400, aria=False)
        layers.append(text.encode(x=x, y=y, text="label:N"))
    spec = specification(*layers, width=width, height=_HEIGHT)
    svg = draw(spec, {"images": points, "labels": texts}, "Size against the energy of a boot", simulated=simulated)
    return _TOLD.sub(lambda found: f"{found[1]}><title>{html.escape(html.unescape(found[2]))}</title></path>", svg)


def _labels(rows: Sequence[ImageRow], size: _Scale, energy: _Scale) -> dict[str, Box]:
    """The place of each label that has room; those that none beats get theirs first."""
    points = {row.label: (size.at(row.size_mib), _HEIGHT - energy.at(row.boot_mj)) for row in rows}
    front = sorted(points[row.label] for row in rows if not row.beaten_by)
    taken: list[Box] = [(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y in points.values()]
    for (x, y), (next_x, next_y) in pairwise(front):
        taken += [(x, y - 1, next_x, y + 1), (next_x - 1, y, next_x + 1, next_y)]
    labels: dict[str, Box] = {}
    for row in sorted(rows, key=lambda row: bool(row.beaten_by)):
        x, y = points[row.label]
        long = _LETTER * len(row.label)
        for across, down in _PLACES:
            near = _POINT + 1 if down == 0 else 2 if across else 0
            left = {1: x + near, -1: x - near - long, 0: x - long / 2}[across]
            top = y - _LINE / 2 + down * (_POINT + _LINE / 2 + 1)
            box = (left, top, left + long, top + _LINE)
            if left >= 0 and box[2] <= size.pixels and not any(_overlap(box, each) for each in taken):
                labels[row.label] = box
                taken.append(box)
                break
    return labels


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
