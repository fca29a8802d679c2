"""Makes pages and documents, in a worker process; of comparisons here, of the others in modules beside this one."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ConfigError, FsjouleError, HostError, ResultError
from fsjoule.host.plaintext import plain
from fsjoule.model.metrics import Metric, metrics_named
from fsjoule.model.places import Lab, PlaceRun
from fsjoule.model.series import Where
from fsjoule.report.comparison import ComparisonView
from fsjoule.report.places.document import to_document as places_document
from fsjoule.report.places.page import render_page as places_page
from fsjoule.report.service import start
from fsjoule.report.service.asked import AskedComparison, AskedPlaces, AskedRun, AskedRuns, AskedStart, AskedTrend
from fsjoule.report.service.jobs import Format, Locate, Made, MissingError, SearchTask, Task
from fsjoule.report.service.overview import Overviews
from fsjoule.report.service.runs import IndexedRun, RunsPage, folder_document, folder_html, why_from_index
from fsjoule.report.service.settings import Explain, Settings
from fsjoule.report.service.trends import TrendPage
from fsjoule.report.site import Site
from fsjoule.report.template import render
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import stats
from fsjoule.store.index.run_list import ListedRun, WhichRuns, find_run, list_runs
from fsjoule.store.sides import Sources
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
            text = self._text(job)
            # Whoever may write to the database may put any text there; texts of run folders are plain already.
            return _packed(plain(text) if job.format is Format.HTML else text)
        with self._settings.open() as index:
            return self._run(index, job.run_id).path if isinstance(job, Locate) else self._found(index, job.text)

    def _text(self, task: Task) -> str:
        if isinstance(task.asked, AskedPlaces):
            return self._places(task.format)
        with self._settings.open() as index:
            return self._of_index(index, task)

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
        return self._run_page(index, task)

    def _comparison(self, index: Index, asked: AskedComparison, wanted: Format) -> str:
        site = self._settings.site("compare")
        if not is_complete(asked):
            if wanted is Format.JSON:
                raise ConfigError("a comparison has two sides", hint="name baseline and candidate")
            return comparison_form(index, site)
        compared, explain = compared_of(index, asked), self._settings.explain
        view = ComparisonView(compared, explain=lambda: _explained(compared, explain))
        return _as(wanted, lambda: view.page(site), view.document)

    def _run_page(self, index: Index, task: Task) -> str:
        site, why = self._settings.site("runs"), None
        if task.folder:
            try:
                return _as(task.format, lambda: folder_html(task.folder, site), lambda: folder_document(task.folder))
            except ResultError as error:
                why = error
        known = IndexedRun(index, self._run(index, task.run_id), why_from_index(why, task.folder))
        return _as(task.format, lambda: known.html(site), known.document)

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


def _packed(text: str) -> Made:
    content = text.encode()
    return Made(gzip.compress(content, _LEVEL, mtime=0), len(content))


_PROPOSED_RUNS: Final = 30


def compared_of(index: Index, asked: AskedComparison) -> Compared:
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


def is_complete(asked: AskedComparison) -> bool:
    """Whether both sides are named. Raises ConfigError if one of them is."""
    if bool(asked.baseline) != bool(asked.candidate):
        raise ConfigError("a comparison has two sides", hint="name baseline and candidate")
    return bool(asked.baseline)


def comparison_form(index: Index, site: Site) -> str:
    """The page that asks for two sides, and proposes some."""
    kernels = [f"kernel:{kernel.label}" for kernel in reversed(stats(index).kernels)]
    runs = [f"run:{run.run_id}" for run in list_runs(index, WhichRuns(), count=_PROPOSED_RUNS)]
    return render("compare.html.j2", site=site, version=version("fsjoule"), simulated=False, proposed=[*kernels, *runs])


def _explained(compared: Compared, explain: Explain | None) -> tuple[Explanation, ...]:
    """Why figures of two kernels of one run differ, if the run has readable profiles."""
    try:
        return explain(compared) if explain is not None else ()
    except FsjouleError:
        return ()
