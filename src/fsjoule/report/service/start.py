"""The trend of all series at once, from which pages choose, and the start page: the latest losses, runs and boards."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from typing import Any, Final

from fsjoule.model.labels import counted
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Series, Where
from fsjoule.report.forge import Forge
from fsjoule.report.service.runs import run_document, runs_table
from fsjoule.report.service.settings import Settings
from fsjoule.report.site import Site
from fsjoule.report.table import Tone
from fsjoule.report.template import render
from fsjoule.report.trend.cards import CauseCard, Links, cards, lately, past_words
from fsjoule.report.trend.cards import headline as trend_headline
from fsjoule.report.trend.document import cause_document
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.store.change_points import remembered
from fsjoule.store.confirmations import confirmations
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import Stats, stats
from fsjoule.store.index.run_list import ListedRun, WhichRuns, list_runs
from fsjoule.store.index.trend import trend_reader
from fsjoule.verdicts.trend.causes import Fate
from fsjoule.verdicts.trend.changes import LevelChange
from fsjoule.verdicts.trend.trend import Trend, trend_of

_KEPT: Final = 4

Shown = tuple[Series, Metric]
SCHEMA: Final = "fsjoule.start/1"
_RUNS: Final = 10
_BOARDS: Final = 60


@dataclass(frozen=True, slots=True)
class Start:
    trend: Trend
    stats: Stats
    runs: list[ListedRun]

    @property
    def cards(self) -> list[CauseCard]:
        return cards(self.trend)

    @property
    def boards(self) -> list[tuple[str, int, bool]]:
        """Boards with the number of their series, and whether all of them are simulated."""
        shown = {series for series, _ in changes_by_series(self.trend)}
        counts = Counter(one.series.board for one in shown)
        real = {one.series.board for one in shown if not one.simulated}
        return [(board, count, board not in real) for board, count in sorted(counts.items())]


def start_of(index: Index, overviews: Overviews, state: str) -> Start:
    trend = overviews.of(index, state, Where(), Order.TIME, ())
    return Start(trend, stats(index), list_runs(index, WhichRuns(), count=_RUNS))


def headline(start: Start) -> tuple[str, Tone]:
    """The lab's answer in one sentence, with its colour."""
    if not start.stats.runs:
        return "The index has no run yet. To add those of a bench: fsjoule index import results.", Tone.PLAIN
    if not start.trend.histories:
        return "The index has no valid measurement yet.", Tone.PLAIN
    return trend_headline(start.cards, start.trend)


def page(start: Start, site: Site, forge: Forge | None = None) -> str:
    held = start.stats
    told, tone = headline(start)
    every = start.cards
    losses = sum(card.cause.fate is Fate.OPEN for card in every)
    simulated = bool(start.trend.histories) and all(each.series.simulated for each in start.trend.histories)
    return render(
        "start.html.j2",
        site=site,
        version=version("fsjoule"),
        simulated=simulated,
        newest=list(lately(start.trend)),
        headline=told,
        tone=tone,
        tiles=[
            ("open losses", str(losses), f"of {counted(len(every), 'cause')}"),
            ("runs", f"{held.runs:,}", f"the last on {held.last_utc[:10]}" if held.last_utc else ""),
            ("measurements", f"{held.measurements:,}", f"{held.valid:,} valid"),
            ("series", f"{held.series:,}", f"on {counted(held.boards, 'board')}"),
        ],
        told=every,
        links=Links(lambda run: site.run(run.run_id), lambda of: site.series(of.series, of.metric), forge),
        past_words=past_words,
        cut_short=start.trend.cut_short,
        runs=runs_table(start.runs, site),
        counted=counted,
        boards=[(name, count, badge, site.address("trend", board=name)) for name, count, badge in start.boards][
            :_BOARDS
        ],
        more_boards=max(0, len(start.boards) - _BOARDS),
    )


def document(start: Start) -> dict[str, Any]:
    told, _ = headline(start)
    return {
        "schema": SCHEMA,
        "headline": told,
        "stats": asdict(start.stats),
        "causes": [cause_document(cause, start.trend) for cause in start.trend.causes],
        "runs": [run_document(run) for run in start.runs],
        "boards": [{"board": name, "series": count} for name, count, _ in start.boards],
    }


@dataclass
class Overviews:
    """Trends by the state of the index and what was asked, the last used ones: each takes a second."""

    settings: Settings
    _kept: OrderedDict[tuple[object, ...], Trend] = field(default_factory=OrderedDict[tuple[object, ...], Trend])

    def of(self, index: Index, state: str, where: Where, order: Order, metrics: tuple[Metric, ...]) -> Trend:
        """The trend of all series in `where`, with the names of the runs of its changes."""
        key = (state, where, order, metrics)
        if key not in self._kept:
            for older in [each for each in self._kept if each[0] != state]:
                del self._kept[older]
            self._kept[key] = self.read(index, where, order, metrics, at_most=self.settings.most_measurements)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def read(
        self,
        index: Index,
        where: Where,
        order: Order,
        metrics: tuple[Metric, ...],
        *,
        at_most: int,
        all_names: bool = False,
    ) -> Trend:
        known, _ = confirmations(self.settings.confirmations)
        with remembered(RupturesFinder()) as finder:
            read = trend_reader(
                index, where, order=order, metrics=metrics, at_most=at_most, of_each=self.settings.least_of_each
            )
            return trend_of(read, confirmations=known, all_names=all_names, finder=finder)


def fits(change: LevelChange, state: str, still: Collection[int]) -> bool:
    """Whether a change is of that state; `still` are the ids of those that are still so and not closed."""
    if state in ("open", "worse"):
        return id(change) in still and (change.worse or state == "open")
    return state in ("", "any") or change.state == state


def still_so(trend: Trend) -> frozenset[int]:
    """The ids of the changes that somebody should look at."""
    return frozenset(id(change) for cause in trend.causes for change in cause.still)


def changes_by_series(trend: Trend) -> dict[Shown, list[LevelChange]]:
    """All series and metrics in the trend's order, each with its changes."""
    found: dict[Shown, list[LevelChange]] = {(each.series, each.metric): [] for each in trend.histories if each.points}
    for change in trend.changes:
        found[change.history.series, change.history.metric].append(change)
    return found


def rank(changes: Sequence[LevelChange], still: Collection[int]) -> float:
    """The largest open loss first, then series with another change, then the rest; as in `trends.js`."""
    losses = [abs(math.log(change.ratio)) for change in changes if fits(change, "worse", still)]
    return -(2 + max(losses)) if losses else -1 if changes else 0


def only(trend: Trend, shown: Sequence[Shown]) -> Trend:
    """The part of a trend that is shown."""
    wanted = set(shown)
    histories = tuple(each for each in trend.histories if (each.series, each.metric) in wanted)
    changes = tuple(each for each in trend.changes if (each.history.series, each.history.metric) in wanted)
    return replace(trend, histories=histories, changes=changes)
