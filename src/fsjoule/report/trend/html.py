"""The self-contained page of trends: one file, no network; its script draws the charts in view.

Hundreds of charts as SVG would take minutes to make and many megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fsjoule.report import style
from fsjoule.report.templating import part, render


@dataclass(frozen=True, slots=True)
class ListedChange:
    """A change in words. `card` and `kernels` are numbers in the page's data; `way` is "worse" or "better"."""

    card: int
    view: str
    kernels: tuple[int, ...]
    status: str
    way: str
    sentence: str
    told: str


@dataclass(frozen=True, slots=True)
class TrendPage:
    """The page's content. Its script draws `data`: see `fsjoule.report.trend.page`.

    `report` is the address of the report to which the page belongs, if any.
    """

    lead: str
    simulated: bool
    tiles: Sequence[tuple[str, str, str]]
    changes: Sequence[ListedChange]
    notes: Sequence[str]
    footer: str
    filesystems: Sequence[str]
    data: Mapping[str, object]
    report: str = ""


def render_trend_page(page: TrendPage) -> str:
    """The page as HTML."""
    colours = style.filesystem_colours(list(page.filesystems))
    data = {
        **page.data,
        "colours": {name: (colour, style.DARK[colour]) for name, colour in colours.items()},
        "trackColours": len(style.KERNELS),
    }
    return render(
        "trends.html.j2",
        report=page.report,
        lead=page.lead,
        simulated=page.simulated,
        tiles=page.tiles,
        changes=page.changes,
        notes=page.notes,
        footer=page.footer,
        more_css=part(
            "trends.css.j2",
            tracks_light=_variables(style.KERNELS),
            tracks_dark=_variables([style.DARK[colour] for colour in style.KERNELS]),
        ),
        data=Markup(_embedded(data)),  # noqa: S704 - nothing in it can end its element
        script=part("trends.js"),
    )


def _embedded(data: Mapping[str, object]) -> str:
    """JSON for the inside of <script>."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _variables(colours: Sequence[str]) -> str:
    return ":root { " + " ".join(f"--k{number}: {colour};" for number, colour in enumerate(colours)) + " }"
