"""Makes pages and documents, in a worker process; of trends and comparisons here, of the others beside this module."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ConfigError, FsjouleError, HostError, ResultError
from fsjoule.host.plaintext import plain
from fsjoule.model.metrics import Metric, metrics_named
from fsjoule.model.places import Lab, PlaceRun
from fsjoule.model.series import Order, Where, utc_named
from fsjoule.report.comparison import ComparisonView
from fsjoule.report.places.page import render_page as places_page
from fsjoule.report.places.tables import to_document as places_document
from fsjoule.report.service import start
from fsjoule.report.service.asked import AskedComparison, AskedPlaces, AskedRun, AskedRuns, AskedStart, AskedTrend
from fsjoule.report.service.jobs import Format, Locate, Made, MissingError, SearchTask, Task
from fsjoule.report.service.runs import IndexedRun, RunsPage, folder_document, folder_html, why_from_index
from fsjoule.report.service.settings import Explain, Settings
from fsjoule.report.service.start import Overviews, Shown, changes_by_series, fits, only, rank, still_so
from fsjoule.report.template import render
from fsjoule.report.trend.cards import cards
from fsjoule.report.trend.document import document
from fsjoule.report.trend.page import Choice, trend_page
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import check_names, stats
from fsjoule.store.index.run_list import ListedRun, WhichRuns, find_run, list_runs
from fsjoule.store.sides import Sources
from fsjoule.store.states import ChangeState
from fsjoule.store.trend_rows import USUAL
from fsjoule.verdicts.compare import compare_sides
from fsjoule.verdicts.comparison import Compared
from fsjoule.verdicts.explanation.changes import Explanation

_LEVEL: Final = 6


Text = Callable[[], str]
Document = Callable[[], dict[str, Any]]


class Maker:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._overviews = Overviews(settings)

    def make(self, job: Task | Locate | SearchTask) -> Made | str:
        """A page or document; a run's folder; the address that a search leads to. Raises FsjouleError."""
        if isinstance(job, Task):
            if isinstance(job.asked, AskedPlaces):
                text = self._places(job.format)
            else:
                with self._settings.open() as index:
                    text = self._of_index(index, job)
            # Whoever may write to the database may put any text there; texts of run folders are plain already.
            content = (plain(text) if job.format is Format.HTML else text).encode()
            return Made(gzip.compress(content, _LEVEL, mtime=0), len(content))
        with self._settings.open() as index:
            return self._run(index, job.run_id).path if isinstance(job, Locate) else self._found(index, job.text)

    def _of_index(self, index: Index, task: Task) -> str:
        asked = task.asked
        if isinstance(asked, AskedStart):
            begun = start.start_of(index, self._overviews, task.state)
            return _as(
                task.format, lambda: start.page(begun, self._settings.site("start")), lambda: start.document(begun)
            )
        if isinstance(asked, AskedTrend):
            trends = TrendPage(index, self._overviews, task.state, asked)
            return _as(task.format, trends.html, trends.document)
        if isinstance(asked, AskedRuns):
            listed = RunsPage(index, asked)
            return _as(task.format, lambda: listed.html(self._settings.site("runs")), listed.document)
        if isinstance(asked, AskedComparison):
            return self._comparison(index, asked, task.format)
        assert isinstance(asked, AskedRun)
        site, why = self._settings.site("runs"), None
        if task.folder:
            try:
                return _as(task.format, lambda: folder_html(task.folder, site), lambda: folder_document(task.folder))
            except ResultError as error:
                why = error
        known = IndexedRun(index, self._run(index, task.run_id), why_from_index(why, task.folder))
        return _as(task.format, lambda: known.html(site), known.document)

    def _comparison(self, index: Index, asked: AskedComparison, wanted: Format) -> str:
        site = self._settings.site("compare")
        if not (asked.baseline and asked.candidate):
            if asked.baseline or asked.candidate or wanted is Format.JSON:
                raise ConfigError("a comparison has two sides", hint="name baseline and candidate")
            # The page asks for two sides, and proposes some.
            kernels = [f"kernel:{kernel.label}" for kernel in reversed(stats(index).kernels)]
            runs = [f"run:{run.run_id}" for run in list_runs(index, WhichRuns(), count=_PROPOSED_RUNS)]
            return render(
                "compare.html.j2", site=site, version=version("fsjoule"), simulated=False, proposed=[*kernels, *runs]
            )
        compared, explain = _compared_of(index, asked), self._settings.explain
        view = ComparisonView(compared, explain=lambda: _explained(compared, explain))
        return _as(wanted, lambda: view.page(site), view.document)

    def _run(self, index: Index, run_id: str) -> ListedRun:
        run = find_run(index, run_id)
        if run is None:
            raise MissingError(f"the index has no run {run_id!r}", hint="is it imported? fsjoule index import FOLDER")
        return run

    def _found(self, index: Index, text: str) -> str:
        """A run by its id or the only one that begins so; else all series with these words."""
        site = self._settings.site()
        runs = list_runs(index, WhichRuns(begins=text), count=2) if text else []
        exact = find_run(index, text)
        if exact is not None:
            return site.run(exact.run_id)
        return site.run(runs[0].run_id) if len(runs) == 1 else site.address("trend", search=text)

    def _places(self, wanted: Format) -> str:
        look = self._settings.look
        assert look is not None, "there is a page of places"
        try:
            lab = _for_readers(look(self._settings.results, time.time()))
        except ConfigError as error:
            # The input of whoever started the service is wrong, not the reader's.
            raise HostError(error.what, hint=error.hint) from error
        site = self._settings.site("places")
        return _as(wanted, lambda: places_page(lab, site), lambda: places_document(lab))


def _for_readers(lab: Lab) -> Lab:
    """The lab without the paths of run folders, which are nobody's business on the network."""

    def without(runs: tuple[PlaceRun, ...]) -> tuple[PlaceRun, ...]:
        return tuple(replace(run, folder="") for run in runs)

    places = tuple(
        replace(each, last_runs=without(each.last_runs), day_runs=without(each.day_runs)) for each in lab.places
    )
    damaged = {Path(folder).name: why.replace(folder, Path(folder).name) for folder, why in lab.damaged.items()}
    return replace(lab, places=places, damaged=damaged)


def _as(wanted: Format, html: Text, document: Document) -> str:
    if wanted is Format.HTML:
        return html()
    return json.dumps(document(), separators=(",", ":"), default=str) + "\n"


_PROPOSED_RUNS: Final = 30


def _compared_of(index: Index, asked: AskedComparison) -> Compared:
    """The comparison. Raises ConfigError for names that the index does not have, or sides that are not comparable."""
    wanted = metrics_named(asked.metric)
    where = Where(boards=asked.board, filesystems=asked.fs)
    # The index is the only source: a name in a request is never a folder's.
    with Sources(index) as sources:
        baseline, candidate = (
            sources.side(name, where, wanted or tuple(Metric), within=asked.within or None)
            for name in (asked.baseline, asked.candidate)
        )
    return compare_sides(baseline, candidate, metrics=wanted, across_boards=asked.across_boards)


def _explained(compared: Compared, explain: Explain | None) -> tuple[Explanation, ...]:
    """Why figures of two kernels of one run differ, if the run has readable profiles."""
    try:
        return explain(compared) if explain is not None else ()
    except FsjouleError:
        return ()


SERIES_A_PAGE: Final = 30
_STATES: Final = ("any", "open", "worse", *(state.value for state in ChangeState))


class TrendPage:
    """What was asked for, found: `shown` of `total` series in a metric, and their trends."""

    def __init__(self, index: Index, overviews: Overviews, state: str, asked: AskedTrend) -> None:
        self.asked = asked
        self._overviews = overviews
        metrics = metrics_named(asked.metric)
        base = Where(
            branches=asked.branch,
            since_utc=utc_named("since", asked.since or None),
            until_utc=utc_named("until", asked.until or None),
        )
        named = replace(base, boards=asked.board, filesystems=asked.fs, workloads=asked.workload)
        check_names(index, replace(named, suites=asked.suite, series=asked.series))
        whole = overviews.of(index, state, base, asked.by, metrics)
        self._all = changes_by_series(whole)
        self._still = still_so(whole)
        chosen = sorted(self._chosen(metrics), key=lambda one: rank(self._all[one], self._still))
        keys_of_chosen = {f"{series.key}.{metric.value}" for series, metric in chosen}
        self._cards = [card for card in cards(whole) if keys_of_chosen.intersection(card.keys)]
        self.total = len(chosen)
        self.pages = max(1, -(-self.total // SERIES_A_PAGE))
        if asked.page > self.pages:
            raise ConfigError(f"page {asked.page} of {self.pages}: there is no such page", hint="begin with page 1")
        self.shown = chosen[(asked.page - 1) * SERIES_A_PAGE : asked.page * SERIES_A_PAGE]
        keys = tuple(dict.fromkeys(series.key for series, _ in self.shown))
        # As much of each series as the overview has, so that both show the same changes; but all of chosen ones.
        settings = overviews.settings
        share = max(settings.least_of_each, settings.most_measurements // max(1, whole.series))
        at_most = settings.most_measurements if asked.series else share * len(keys)
        where = Where(
            series=keys or ("none",), branches=base.branches, since_utc=base.since_utc, until_utc=base.until_utc
        )
        self.trends = {
            order: only(overviews.read(index, where, order, metrics, at_most=at_most, all_names=True), self.shown)
            for order in Order
        }

    def _chosen(self, metrics: Sequence[Metric]) -> Iterable[Shown]:
        asked = self.asked
        words = asked.search.lower().split()
        for (series, metric), changes in self._all.items():
            key = series.series
            among = ((key.board, asked.board), (key.suite, asked.suite))
            if asked.fs and not any(map(key.has_filesystem, asked.fs)):
                continue
            if not all(value in choices for value, choices in among if choices):
                continue
            if asked.workload and not {key.workload, key.workload.partition(" ")[0]} & set(asked.workload):
                continue
            if metrics and metric not in metrics:
                continue
            if asked.series and not series.key.startswith(asked.series):
                continue
            if asked.state and not any(fits(change, asked.state, self._still) for change in changes):
                continue
            if words:
                options = " ".join((*key.make_options, *key.mount_options))
                simulated = "simulated" if series.simulated else ""
                texts = (series.label, key.board, metric.value, key.suite, key.storage, options, simulated)
                text = " ".join(texts).lower()
                if not all(word in text for word in words):
                    continue
            yield series, metric

    def html(self) -> str:
        site = self._overviews.settings.site("trends")
        by_time, by_kernel = (self.trends[order] for order in (Order.TIME, Order.KERNEL))
        asked = self.asked.texts()
        kept = {name: value for name, value in asked.items() if (name, value) != ("by", Order.TIME.value)}
        choice = Choice(asked, self._options(), self.total, site.pager("trend", kept, self.asked.page, self.pages))
        forge = self._overviews.settings.forge
        return trend_page(
            by_time,
            by_kernel,
            forge=forge,
            link=lambda run: site.run(run.run_id),
            site=site,
            choice=choice,
            told=self._cards,
        )

    def _options(self) -> dict[str, list[str]]:
        series = [one.series for one, _ in self._all]
        return {
            "fs": sorted({key.filesystem for key in series}),
            "workload": sorted({key.workload for key in series}),
            "board": sorted({key.board for key in series}),
            "suite": sorted({key.suite for key in series}),
            "metric": ["all", *sorted({metric.value for _, metric in self._all} | {metric.value for metric in USUAL})],
            "state": list(_STATES),
        }

    def document(self) -> dict[str, object]:
        paging = {"page": self.asked.page, "pages": self.pages, "series_in_a_metric": self.total}
        return {**document(self.trends[self.asked.by]), "paging": paging}
