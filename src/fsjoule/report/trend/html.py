"""The self-contained page of trends: one file, no network; its charts are drawn by its own script, as far as one looks.

Hundreds of charts as SVG would be a page of many megabytes that takes minutes to make.
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
    """A change in words. `card` and `kernels` are numbers in the page's data, `way` is worse or better."""

    card: int
    view: str
    kernels: tuple[int, ...]
    status: str
    way: str
    sentence: str
    told: str


@dataclass(frozen=True, slots=True)
class TrendPage:
    """What stands on the page. `data` is what its script draws: see `fsjoule.report.trend.page`.

    `report` is the address of the report that the page belongs to, if it does.
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
        data=Markup(_embedded(data)),  # noqa: S704 - nothing in it can end the element that it stands in
        script=part("trends.js"),
    )


def _embedded(data: Mapping[str, object]) -> str:
    """JSON that can stand within <script>."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _variables(colours: Sequence[str]) -> str:
    return ":root { " + " ".join(f"--k{number}: {colour};" for number, colour in enumerate(colours)) + " }"
