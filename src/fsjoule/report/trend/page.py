"""A trend as a page: every history over time and over kernels.

The page is one file without network. Its script draws a chart when it comes into view: hundreds of charts as SVG would
take minutes to make and many megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from markupsafe import Markup

from fsjoule.model.labels import counted
from fsjoule.report import style
from fsjoule.report.template import part, render
from fsjoule.report.trend import words
from fsjoule.report.trend.document import published_figure
from fsjoule.store.index.records import Order
from fsjoule.store.index.serieskeys import IndexedSeries
from fsjoule.verdicts.trend.changes import Change, Status
from fsjoule.verdicts.trend.history import History, interval
from fsjoule.verdicts.trend.trend import Trend

_DIGITS = 6


def trend_page(by_time: Trend, by_kernel: Trend, *, report: str = "") -> str:
    """The page as HTML, linked to the `report`. Both trends need the same series and the names of all runs."""
    trends = {Order.TIME: by_time, Order.KERNEL: by_kernel}
    numbers = _Numbers(trends)
    cards = _cards(trends)
    place = {id(history): number for number, card in enumerate(cards) for history in card.histories()}
    listed = [
        _listed(change, trend, place[id(change.history)], numbers)
        for trend in trends.values()
        for change in trend.changes
    ]
    series = {card.first.series for card in cards}
    colours = style.filesystem_colours(sorted({one.series.filesystem for one in series}))
    data = {
        "kernels": numbers.kernel_names,
        "runs": numbers.runs,
        "cards": [card.document(number, numbers) for number, card in enumerate(cards)],
        "colours": {name: (colour, style.DARK[colour]) for name, colour in colours.items()},
        "trackColours": len(style.KERNELS),
    }
    return render(
        "trends.html.j2",
        report=report,
        lead=f"{len(series)} series on {counted(len({one.series.board for one in series}), 'board')}, "
        f"{counted(by_time.measurements, 'measurement')}",
        simulated=bool(series) and all(one.simulated for one in series),
        tiles=[*_tiles(by_time, "over time"), *_tiles(by_kernel, "over kernels")],
        changes=listed,
        notes=list(_notes(by_time)),
        footer=f"fsjoule {version('fsjoule')} · {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        more_css=part(
            "trends.css.j2",
            tracks_light=_variables(style.KERNELS),
            tracks_dark=_variables([style.DARK[colour] for colour in style.KERNELS]),
        ),
        data=Markup(_embedded(data)),  # noqa: S704 - nothing in it can end its element
        script=part("trends.js"),
    )


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
        self._runs = {number: place for place, number in enumerate(sorted({point.run for point in points}))}
        self.runs = [(names[number].run_id, names[number].commit) for number in self._runs]

    def kernel(self, number: int | None) -> int:
        return -1 if number is None else self._kernels[number]

    def run(self, number: int) -> int:
        return self._runs[number]


class _Card:
    """One series in one metric, over time and over kernels."""

    def __init__(self, first: History) -> None:
        self.first = first
        self.tracks: dict[Order, list[tuple[History, list[Change]]]] = {order: [] for order in Order}

    def histories(self) -> Iterator[History]:
        for tracks in self.tracks.values():
            for history, _ in tracks:
                yield history

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Importance: confirmed changes, then nominated ones, then the rest."""
        changes = [change for tracks in self.tracks.values() for _, of in tracks for change in of]
        open_ones = [change for change in changes if change.status is not Status.REFUTED]
        return (
            any(change.status is Status.CONFIRMED for change in changes),
            bool(open_ones),
            max((abs(change.ratio - 1) for change in open_ones), default=0.0),
        )

    def document(self, number: int, numbers: _Numbers) -> dict[str, object]:
        key, metric = self.first.series.series, self.first.metric
        options = " ".join((*key.make_options, *key.mount_options))
        return {
            "number": number,
            "title": self.first.series.label,
            "about": f"{key.board}, {key.suite}{', ' + options if options else ''}",
            "board": key.board,
            "fs": key.filesystem,
            "workload": key.workload,
            "simulated": self.first.series.simulated,
            "metric": metric.value,
            "unit": metric.unit,
            "published": published_figure(self.first),
            "views": {
                order.value: [_track(history, changes, numbers) for history, changes in tracks if history.points]
                for order, tracks in self.tracks.items()
            },
        }


def _cards(trends: Mapping[Order, Trend]) -> list[_Card]:
    cards: dict[tuple[IndexedSeries, str], _Card] = {}
    for order, trend in trends.items():
        for history, changes in trend.with_changes():
            card = cards.setdefault((history.series, history.metric.value), _Card(history))
            card.tracks[order].append((history, changes))
    return sorted(cards.values(), key=lambda card: card.rank, reverse=True)


def _track(history: History, changes: list[Change], numbers: _Numbers) -> dict[str, object]:
    return {
        "label": history.label,
        "points": [
            (
                numbers.run(point.run),
                numbers.kernel(point.kernel),
                point.started_utc,
                _rounded(point.figure),
                *map(_rounded, interval(point.boots)[:2]),
                len(point.boots),
                point.runs,
            )
            for point in history.points
        ],
        "changes": [
            {
                "at": change.nomination.index,
                "ratio": _rounded(change.ratio),
                "status": change.status.value,
                "way": _way(change),
            }
            for change in changes
        ],
    }


def _listed(change: Change, trend: Trend, card: int, numbers: _Numbers) -> dict[str, object]:
    """A change in words; `card` and `kernels` are numbers in the page's data."""
    return {
        "card": card,
        "view": trend.order.value,
        "kernels": tuple(dict.fromkeys(numbers.kernel(point.kernel) for point in (change.last, change.since))),
        "status": change.status.value,
        "way": _way(change),
        "sentence": words.sentence(change, trend),
        "told": words.verdict(change) or f"confirm with: {words.confirm_command(change, trend)}",
    }


def _way(change: Change) -> str:
    return "worse" if change.worse else "better"


def _rounded(figure: float) -> float:
    return float(f"{figure:.{_DIGITS}g}")


def _tiles(trend: Trend, name: str) -> Iterator[tuple[str, str, str]]:
    counts = {status: sum(change.status is status for change in trend.changes) for status in Status}
    rest = f"{counts[Status.NOMINATED]} nominated, {counts[Status.REFUTED]} refuted"
    yield f"changes {name}", f"{counts[Status.CONFIRMED]} confirmed", rest
    yield f"unchanged {name}", str(trend.unchanged), f"of {len(trend.histories)}, {trend.too_short} too short"


def _notes(trend: Trend) -> Iterator[str]:
    if trend.cut_short:
        yield f"Older measurements of {trend.cut_short} series were left out."


def _embedded(data: Mapping[str, object]) -> str:
    """JSON for the inside of <script>."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _variables(colours: Sequence[str]) -> str:
    return ":root { " + " ".join(f"--k{number}: {colour};" for number, colour in enumerate(colours)) + " }"
