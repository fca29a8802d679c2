"""The start page: what changed for the worse, the latest runs, the boards."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Final

from fsjoule.model.labels import counted
from fsjoule.model.series import Order, Where
from fsjoule.report.forge import Forge
from fsjoule.report.service.overview import Overviews, changes_by_series
from fsjoule.report.service.runs import run_document, runs_table
from fsjoule.report.site import Site
from fsjoule.report.table import Tone
from fsjoule.report.template import render
from fsjoule.report.trend.cards import CauseCard, Links, cards, lately, past_words
from fsjoule.report.trend.cards import headline as trend_headline
from fsjoule.report.trend.document import cause_document
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import Stats, stats
from fsjoule.store.index.run_list import ListedRun, WhichRuns, list_runs
from fsjoule.verdicts.trend.causes import Fate
from fsjoule.verdicts.trend.trend import Trend

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
