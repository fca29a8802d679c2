"""Trends as a page: every series over time and over kernels, its changes, and a heat map of kernels.

The page is one file that loads nothing. Its script draws a chart when it comes into view.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote, urlencode

from markupsafe import Markup

from fsjoule.model.labels import counted
from fsjoule.model.series import Order
from fsjoule.report import uplot
from fsjoule.report.forge import Forge
from fsjoule.report.run import PAGE
from fsjoule.report.site import Pager, Site
from fsjoule.report.template import part, render
from fsjoule.report.trend.cards import Card, Links, Of, cards, headline, lately, past_words
from fsjoule.report.trend.data import Link, page_data
from fsjoule.report.trend.words import drifts
from fsjoule.store.trend_rows import RunNames
from fsjoule.verdicts.trend.trend import Trend

# Controls of the page that a service serves itself. Others, as the kernel, choose among what a page holds.
_ASKED = ("search", "fs", "workload", "metric", "board", "view", "state")

_FOLDED = ("workload", "metric", "state", "suite", "branch", "since", "until")


@dataclass(frozen=True, slots=True)
class Choice:
    """What a service has chosen: a page of the series that were asked for.

    `asked` has a text for each control, `options` the values of those with a list. `total` counts all such series.
    """

    asked: Mapping[str, str]
    options: Mapping[str, Sequence[str]]
    total: int
    pager: Pager

    @property
    def folded_is_asked(self) -> bool:
        """Whether one of the controls that are usually folded has chosen something."""
        return any(self.asked[name] for name in _FOLDED) or self.asked["by"] != Order.TIME.value


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
    by_time: Trend,
    by_kernel: Trend,
    *,
    report: str = "",
    forge: Forge | None = None,
    link: Link = no_link,
    site: Site | None = None,
    choice: Choice | None = None,
    told: Sequence[Card] | None = None,
) -> str:
    """The page as HTML, linked to the `report`. Both trends need the same series and the names of all runs.

    `link` gives the address of a run, empty where it has none; commits lead to the `forge`. A page of a `site` has its
    `choice`, the cards `told` of all that was asked for, and its libraries in files of their own.
    """
    data = page_data(by_time, by_kernel, forge=forge, link=link)
    if site and choice:
        data |= {"asked": _ASKED, "total": choice.total, "compare": site.address("compare")}
    series = {history.series for trend in (by_time, by_kernel) for history in trend.histories}
    boards = {one.series.board for one in series}
    shown = f"{len(series)} series"
    if choice:
        shown = f"{len({(each.series, each.metric) for each in by_time.histories})} of {choice.total} series"
    every = cards(by_time) if told is None else told
    views = {"time": every, "kernel": cards(by_kernel)} if told is None else {"": every}
    answer, tone = headline(every, by_time)
    return render(
        "trends.html.j2",
        site=site,
        headline=answer,
        tone=tone,
        views=views,
        links=Links(link, (lambda of: site.series(of.series, of.metric)) if site else _own_series, forge),
        past_words=past_words,
        sheets=["trends.css"],
        choice=choice,
        report=report,
        lead=f"{shown} on {counted(len(boards), 'board')}, {counted(by_time.measurements, 'measurement')}",
        simulated=bool(series) and all(one.simulated for one in series),
        newest=list(lately(by_time)),
        notes=list(_notes(by_time)),
        footer=f"fsjoule {version('fsjoule')} · {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        library_css="" if site else uplot.style_sheet(),
        more_css="" if site else part("trends.css.j2"),
        library="" if site else uplot.script(),
        data=Markup(_embedded(data)),  # noqa: S704 - it cannot end its element
        scripts=[] if site else [part("trends_chart.js"), part("trends.js")],
    )


def _own_series(of: Of) -> str:
    return f"#{urlencode({'series': f'{of.series}.{of.metric}'})}"


def _notes(trend: Trend) -> Iterator[str]:
    if trend.cut_short:
        yield f"Older measurements of {trend.cut_short} series were left out."
    if trend.drifts:
        yield f"{drifts(trend)}."
    if trend.too_short:
        yield f"{counted(trend.too_short, 'history', 'histories')} of fewer than 6 points cannot show a change."


def _embedded(data: Mapping[str, object]) -> str:
    """JSON for the inside of <script>."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
