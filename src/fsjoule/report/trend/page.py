"""Trends as a page: every series over time and over kernels, its changes, and a heat map of kernels.

The page is one file that loads nothing. Its script draws a chart when it comes into view.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from fsjoule.model.labels import counted
from fsjoule.report import uplot
from fsjoule.report.forge import Forge
from fsjoule.report.run import PAGE
from fsjoule.report.template import part, render
from fsjoule.report.trend.data import Link, page_data
from fsjoule.store.index.newestrows import RunNames
from fsjoule.verdicts.trend.trend import Trend


def no_link(_run: RunNames) -> str:
    return ""


def link_from(folder: Path) -> Link:
    """Addresses of runs on this machine, as a page in `folder` has them: the run's own page, else its folder."""
    here = folder.resolve()

    def link(run: RunNames) -> str:
        there = Path(run.path)
        target = next((each for each in (there / PAGE, there) if each.exists()), None)
        return quote(os.path.relpath(target, here)) if target else ""

    return link


def trend_page(
    by_time: Trend, by_kernel: Trend, *, report: str = "", forge: Forge | None = None, link: Link = no_link
) -> str:
    """The page as HTML, linked to the `report`. Both trends need the same series and the names of all runs.

    `link` gives the address of a run, empty where it has none; commits lead to the `forge`.
    """
    series = {history.series for trend in (by_time, by_kernel) for history in trend.histories}
    boards = {one.series.board for one in series}
    return render(
        "trends.html.j2",
        report=report,
        lead=f"{len(series)} series on {counted(len(boards), 'board')}, {counted(by_time.measurements, 'measurement')}",
        simulated=bool(series) and all(one.simulated for one in series),
        notes=list(_notes(by_time)),
        footer=f"fsjoule {version('fsjoule')} · {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        library_css=uplot.style_sheet(),
        more_css=part("trends.css.j2"),
        library=uplot.script(),
        data=Markup(_embedded(page_data(by_time, by_kernel, forge=forge, link=link))),  # noqa: S704 - it cannot end its element
        scripts=[part("trends_chart.js"), part("trends.js")],
    )


def _notes(trend: Trend) -> Iterator[str]:
    if trend.cut_short:
        yield f"Older measurements of {trend.cut_short} series were left out."
    if trend.too_short:
        yield f"{counted(trend.too_short, 'history', 'histories')} of fewer than 6 points cannot show a change."


def _embedded(data: Mapping[str, object]) -> str:
    """JSON for the inside of <script>."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
