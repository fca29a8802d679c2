"""The start page: what changed for the worse, the latest runs, the boards."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Final

from fsjoule.model.labels import counted
from fsjoule.report.numbers import change_text
from fsjoule.report.service.overview import Overviews, changes_by_series, losses
from fsjoule.report.service.runs import run_document, runs_table
from fsjoule.report.site import Site
from fsjoule.report.table import Cell, Table, Tone, listing, word
from fsjoule.report.template import render
from fsjoule.report.trend import words
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import stats
from fsjoule.store.index.records import Order, Stats, Where
from fsjoule.store.index.run_list import ListedRun, WhichRuns, list_runs
from fsjoule.verdicts.trend.changes import Change
from fsjoule.verdicts.trend.trend import Trend

SCHEMA: Final = "fsjoule.start/1"
_CHANGES: Final = 10
_RUNS: Final = 10
_BOARDS: Final = 60


@dataclass(frozen=True, slots=True)
class Start:
    trend: Trend
    stats: Stats
    runs: list[ListedRun]

    @property
    def losses(self) -> list[Change]:
        return list(losses(self.trend))

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
    worse = start.losses
    if not start.stats.runs:
        return "The index has no run yet. To add those of a bench: fsjoule index import results.", Tone.PLAIN
    if not start.trend.histories:
        return "The index has no valid measurement yet.", Tone.PLAIN
    if not worse:
        enough = len(start.trend.histories) - start.trend.too_short
        if not enough:
            return "No series has enough runs to see a change.", Tone.PLAIN
        return f"No open change for the worse in {counted(enough, 'history', 'histories')}.", Tone.GOOD
    newest = worse[0]
    where = words.title(newest.history)
    changed = change_text(newest.history.metric, newest.ratio)
    told = f"{counted(len(worse), 'open change')} for the worse; the newest: {where} is {changed}"
    return f"{told} since {newest.since.started_utc[:10]}.", Tone.BAD


def page(start: Start, site: Site) -> str:
    held = start.stats
    told, tone = headline(start)
    worse = start.losses
    simulated = bool(start.trend.histories) and all(each.series.simulated for each in start.trend.histories)
    return render(
        "start.html.j2",
        site=site,
        version=version("fsjoule"),
        simulated=simulated,
        headline=told,
        tone=tone,
        tiles=[
            ("open, for the worse", str(len(worse)), f"of {counted(len(start.trend.changes), 'change')}"),
            ("runs", f"{held.runs:,}", f"the last on {held.last_utc[:10]}" if held.last_utc else ""),
            ("measurements", f"{held.measurements:,}", f"{held.valid:,} valid"),
            ("series", f"{held.series:,}", f"on {counted(held.boards, 'board')}"),
        ],
        changes=_changes_table(worse[:_CHANGES], start.trend, site),
        more=max(0, len(worse) - _CHANGES),
        cut_short=start.trend.cut_short,
        runs=runs_table(start.runs, site),
        counted=counted,
        boards=[(name, count, badge, site.address("trend", board=name)) for name, count, badge in start.boards][
            :_BOARDS
        ],
        more_boards=max(0, len(start.boards) - _BOARDS),
    )


def _changes_table(changes: list[Change], trend: Trend, site: Site) -> Table:
    columns = (word("since"), word("series"), word("board"), word("change"), word("kernel"), word("run"), word("state"))
    rows: list[tuple[str | Cell, ...]] = []
    for change in changes:
        history, run = change.history, trend.runs[change.since.run]
        after = words.kernel_text(change.since, trend, beside=change.last)
        before = words.kernel_text(change.last, trend, beside=change.since)
        told = f"{change_text(history.metric, change.ratio)}"
        rows.append(
            (
                change.since.started_utc[:10],
                Cell(
                    f"{history.series.label}{f', kernel {history.label}' if history.label else ''}",
                    link=site.series(history.series.key, history.metric.value),
                ),
                history.series.series.board + (" (simulated)" if history.series.simulated else ""),
                Cell(told, tone=Tone.BAD),
                f"{after}, before: {before}" if after != before else after,
                Cell(run.run_id, link=site.run(run.run_id)),
                change.state.value,
            )
        )
    return listing(columns, rows)


def document(start: Start) -> dict[str, Any]:
    told, _ = headline(start)
    return {
        "schema": SCHEMA,
        "headline": told,
        "stats": asdict(start.stats),
        "changes": [_change(change, start.trend) for change in start.losses],
        "runs": [run_document(run) for run in start.runs],
        "boards": [{"board": name, "series": count} for name, count, _ in start.boards],
    }


def _change(change: Change, trend: Trend) -> dict[str, object]:
    since, kernel = trend.runs[change.since.run], trend.kernels.get(change.since.kernel or 0)
    return {
        "series": change.history.series.document(),
        "metric": change.history.metric.value,
        "ratio": change.ratio,
        "state": change.state.value,
        "since": {
            "run": since.run_id,
            "started_utc": change.since.started_utc,
            "kernel": asdict(kernel) if kernel else None,
            "commit": since.commit,
        },
    }
