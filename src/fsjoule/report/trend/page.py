"""Trends as a page: every series over time and over kernels, its changes, and a heat map of kernels.

The page is one file that loads nothing. Its script draws a chart when it comes into view.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from markupsafe import Markup

from fsjoule.model.labels import counted
from fsjoule.model.series import Order, Series
from fsjoule.report import style
from fsjoule.report.forge import Forge
from fsjoule.report.numbers import change_text
from fsjoule.report.site import Pager, Site
from fsjoule.report.template import part, render, uplot_script, uplot_style_sheet
from fsjoule.report.trend import words
from fsjoule.report.trend.cards import CauseCard, Links, Of, cards, headline, lately, past_words
from fsjoule.report.trend.document import published_figure
from fsjoule.report.trend.words import drifts
from fsjoule.store.folder import PAGE
from fsjoule.store.states import ChangeState
from fsjoule.store.trend_rows import RunNames
from fsjoule.verdicts.trend.changes import LevelChange
from fsjoule.verdicts.trend.history import History, interval
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
    link: Link = lambda _run: "",
    site: Site | None = None,
    choice: Choice | None = None,
    told: Sequence[CauseCard] | None = None,
) -> str:
    """The page as HTML, linked to the `report`. Both trends need the same series and the names of all runs.

    `link` gives the address of a run, empty where it has none; commits lead to the `forge`. A page of a `site` has its
    `choice`, the cards `told` of all that was asked for, and its libraries in files of their own.
    """
    data = _page_data(by_time, by_kernel, forge=forge, link=link)
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
        library_css="" if site else uplot_style_sheet(),
        more_css="" if site else part("trends.css.j2"),
        library="" if site else uplot_script(),
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


_DIGITS: Final = 6

# The address of a run; empty where it has none.
Link = Callable[[RunNames], str]


def _page_data(by_time: Trend, by_kernel: Trend, *, forge: Forge | None, link: Link) -> dict[str, object]:
    """All of it. Both trends need the same series and the names of all runs."""
    trends = {Order.TIME: by_time, Order.KERNEL: by_kernel}
    numbers = _Numbers(trends)
    shown = _series(trends)
    place = {id(history): number for number, one in enumerate(shown) for history in one.histories()}
    still = {id(change) for trend in trends.values() for cause in trend.causes for change in cause.still}
    changes = [
        _change(change, trend, place[id(change.history)], shown) | {"still": id(change) in still}
        for trend in trends.values()
        for change in trend.changes
    ]
    filesystems = sorted({one.first.series.series.filesystem for one in shown})
    colours = style.filesystem_colours(filesystems)
    return {
        "kernels": numbers.kernel_names,
        "runs": [(names.run_id, names.commit or "", link(names), names.origin.board or "") for names in numbers.runs],
        "series": [one.document(numbers) for one in shown],
        "changes": changes,
        "colours": {name: (colour, style.DARK[colour]) for name, colour in colours.items()},
        "tracks": [(colour, style.DARK[colour]) for colour in style.KERNELS],
        "forge": asdict(forge) if forge else None,
    }


class _Numbers:
    """Short numbers for kernels (oldest first) and runs, because every point of the page has them."""

    def __init__(self, trends: Mapping[Order, Trend]) -> None:
        points = [p for trend in trends.values() for history in trend.histories for p in history.points]
        kernels = {number: kernel for trend in trends.values() for number, kernel in trend.kernels.items()}
        used = {point.kernel for point in points if point.kernel is not None}
        in_order = sorted(used, key=lambda number: kernels[number].order)
        releases = [kernels[number].release for number in in_order]
        self._kernels = {number: place for place, number in enumerate(in_order)}
        self.kernel_names = [
            kernels[number].release if releases.count(kernels[number].release) == 1 else kernels[number].label
            for number in in_order
        ]
        names = {number: run for trend in trends.values() for number, run in trend.runs.items()}
        used_runs = sorted({point.run for point in points})
        self._runs = {number: place for place, number in enumerate(used_runs)}
        self.runs = [names[number] for number in used_runs]

    def kernel(self, number: int | None) -> int:
        return -1 if number is None else self._kernels[number]

    def run(self, number: int) -> int:
        return self._runs[number]


class _Shown:
    """One series in one metric, over time and over kernels."""

    def __init__(self, first: History) -> None:
        self.first = first
        self.tracks: dict[Order, list[History]] = {order: [] for order in Order}

    def histories(self) -> Iterator[History]:
        for tracks in self.tracks.values():
            yield from tracks

    def document(self, numbers: _Numbers) -> dict[str, object]:
        series, metric = self.first.series, self.first.metric
        key = series.series
        options = " ".join((*key.make_options, *key.mount_options))
        return {
            "key": f"{series.key}.{metric.value}",
            "title": series.label,
            "about": f"{key.suite}, {key.storage}{', ' + options if options else ''}",
            "board": key.board,
            "fs": key.filesystem,
            "workload": key.workload,
            "simulated": series.simulated,
            "metric": metric.value,
            "unit": metric.unit,
            "more": metric.more_is_better,
            "words": (metric.change(0.5), metric.change(2.0)),
            "published": published_figure(self.first),
            "sees": words.memory(self.first),
            "views": {
                order.value: [_track(history, numbers) for history in tracks if history.points]
                for order, tracks in self.tracks.items()
            },
        }


def _series(trends: Mapping[Order, Trend]) -> list[_Shown]:
    shown: dict[tuple[Series, str], _Shown] = {}
    for order, trend in trends.items():
        for history in trend.histories:
            one = shown.setdefault((history.series, history.metric.value), _Shown(history))
            one.tracks[order].append(history)
    return list(shown.values())


def _track(history: History, numbers: _Numbers) -> dict[str, object]:
    points = history.points
    low, high = zip(*(interval(point.boots)[:2] for point in points), strict=True)
    at = [round(datetime.fromisoformat(point.started_utc).timestamp()) for point in points]
    return {
        "label": history.label,
        "at": [at[0], *(later - earlier for earlier, later in pairwise(at))],
        "run": [numbers.run(point.run) for point in points],
        "kernel": [numbers.kernel(point.kernel) for point in points],
        "figure": [_rounded(point.figure) for point in points],
        "low": list(map(_rounded, low)),
        "high": list(map(_rounded, high)),
        "boots": [len(point.boots) for point in points],
        "runs": [point.runs for point in points] if any(point.runs > 1 for point in points) else None,
    }


def _change(change: LevelChange, trend: Trend, series: int, shown: list[_Shown]) -> dict[str, object]:
    """A change; `track` and `at` are the places of its track and of its first point there."""
    tracks = [history for history in shown[series].tracks[trend.order] if history.points]
    told = [*words.kept(change), words.verdict(change), words.nights(change)]
    if change.state is ChangeState.NEW and not (change.verdict and change.verdict.decided):
        told.append(words.next_step(change, trend))
    return {
        "series": series,
        "view": trend.order.value,
        "track": next(place for place, history in enumerate(tracks) if history is change.history),
        "at": change.nomination.index,
        "ratio": _rounded(change.ratio),
        "worse": change.worse,
        "state": change.state.value,
        "text": change_text(change.history.metric, change.ratio),
        "told": "; ".join(filter(None, told)),
    }


def _rounded(figure: float) -> float:
    return float(f"{figure:.{_DIGITS}g}")
