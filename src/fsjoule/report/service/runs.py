"""The list of runs, and the page of one: from its folder where that is reachable, else from what the index knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ResultError
from fsjoule.host.plaintext import plain_line
from fsjoule.model import RunStatus
from fsjoule.model.labels import counted, without_folders
from fsjoule.model.metrics import Metric, Use, fio_metrics, held_metrics, timed_metrics
from fsjoule.model.series import Point, Series, Where
from fsjoule.report.numbers import ABSENT
from fsjoule.report.run import run_page, summary_of, to_json
from fsjoule.report.service.asked import AskedRuns
from fsjoule.report.site import Site
from fsjoule.report.table import Cell, Column, Table, Tone, listing, word
from fsjoule.report.template import render
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import check_names, points
from fsjoule.store.index.run_list import ListedRun, WhichRuns, count_runs, list_runs
from fsjoule.store.reader import LoadedRun, load_run

RUNS_SCHEMA: Final = "fsjoule.runs/1"
# What the index knows of a run whose folder is not reachable: less than `fsjoule.show`.
INDEXED_SCHEMA: Final = "fsjoule.indexed-run/1"
RUNS_A_PAGE: Final = 50
_MOST_ROWS: Final = 400
_TONES: Final[dict[str, Tone]] = {RunStatus.ABORTED: Tone.BAD, RunStatus.RUNNING: Tone.DOUBT}
_FIGURES: Final = (*fio_metrics(Use.POINTS), *timed_metrics(Use.POINTS), *held_metrics(Use.POINTS))

Measured = list[tuple[Series, Point]]


class RunsPage:
    def __init__(self, index: Index, asked: AskedRuns) -> None:
        self.asked = asked
        which = WhichRuns((), asked.run, asked.board, asked.suite, asked.branch, asked.status)
        self.total = count_runs(index, which)
        if not self.total:
            check_names(index, Where(boards=asked.board, suites=asked.suite, branches=asked.branch))
        self.pages = max(1, -(-self.total // RUNS_A_PAGE))
        self.runs = list_runs(index, which, first=(asked.page - 1) * RUNS_A_PAGE, count=RUNS_A_PAGE)

    def html(self, site: Site) -> str:
        asked = self.asked.texts()
        return render(
            "runs.html.j2",
            site=site,
            version=version("fsjoule"),
            simulated=bool(self.runs) and all(run.simulated for run in self.runs),
            lead=f"{counted(self.total, 'run')}, newest first",
            asked=asked,
            runs=runs_table(self.runs, site),
            pager=site.pager("runs", asked, self.asked.page, self.pages),
        )

    def document(self) -> dict[str, Any]:
        paging = {"page": self.asked.page, "pages": self.pages, "runs": self.total}
        return {"schema": RUNS_SCHEMA, "runs": [run_document(run) for run in self.runs], "paging": paging}


def runs_table(runs: Sequence[ListedRun], site: Site) -> Table:
    columns = (
        *map(word, ("started", "run", "suite", "board", "kernels", "branch", "status")),
        Column("valid"),
        Column("of"),
    )
    rows = [
        (
            run.started_utc.replace("T", " ").removesuffix("Z")[:16],
            Cell(run.run_id, link=site.run(run.run_id)),
            run.suite,
            (run.board or ABSENT) + (" (simulated)" if run.simulated else ""),
            ", ".join(kernel.release for kernel in run.kernels.values()) or ABSENT,
            run.branch or ABSENT,
            Cell(run.status, tone=_TONES.get(run.status, Tone.PLAIN)),
            str(run.valid),
            str(run.measurements),
        )
        for run in runs
    ]
    return listing(columns, rows)


def run_document(run: ListedRun) -> dict[str, Any]:
    """A run as the index has it. Its folder is nobody's business on the network."""
    told = {name: value for name, value in asdict(run).items() if name not in ("path", "origin", "kernels")}
    kernels = {label: asdict(kernel) for label, kernel in run.kernels.items()}
    return {**told, "kernels": kernels, **run.origin._asdict()}


# ------------------------------------------------------------------------------------------------------- one run


def folder_html(folder: str, site: Site) -> str:
    """The page of `fsjoule report page`. Raises ResultError for a folder that cannot be read."""
    return run_page(_shown(folder), site=site)


def folder_document(folder: str) -> dict[str, Any]:
    """The document of `fsjoule show --json`."""
    loaded = _shown(folder)
    return json.loads(to_json(summary_of(loaded), loaded.measurements))


def _shown(folder: str) -> LoadedRun:
    loaded = load_run(Path(folder))
    return replace(loaded, run=replace(loaded.run, command=without_folders(loaded.run.command)))


class IndexedRun:
    """What the index knows of a run."""

    def __init__(self, index: Index, run: ListedRun, why: str) -> None:
        self.run = run
        self._why = why
        found = points(index, Where(runs=(run.run_id,), invalid_too=True))
        self._measured: Measured = [(series, point) for series, group in found.items() for point in group]
        self._measured.sort(key=lambda each: each[1].number)

    def html(self, site: Site) -> str:
        run = self.run
        kernels = ", ".join(f"{label}: {kernel.label}" for label, kernel in run.kernels.items())
        facts = [
            *(("started", run.started_utc), ("status", run.status), ("kernels", kernels), ("branch", run.branch)),
            *(("commit", run.commit), ("place", run.origin.board), ("meter", run.origin.meter), ("job", run.job)),
        ]
        return render(
            "indexed_run.html.j2",
            site=site,
            version=version("fsjoule"),
            simulated=run.simulated,
            run=run,
            why=self._why,
            facts=[(name, text) for name, text in facts if text],
            table=_figures(self._measured[:_MOST_ROWS], site),
            left_out=max(0, len(self._measured) - _MOST_ROWS),
            document=f"{site.run(run.run_id)}.json",
            invalid=[
                (f"{point.number:02d} {series.label}", "; ".join(point.invalid_reasons))
                for series, point in self._measured
                if not point.valid
            ],
        )

    def document(self) -> dict[str, Any]:
        return {
            "schema": INDEXED_SCHEMA,
            "simulated": self.run.simulated,
            "run": run_document(self.run),
            "measurements": [
                {
                    "number": point.number,
                    "series": series.document(),
                    "started_utc": point.started_utc,
                    "kernel": asdict(point.kernel) if point.kernel else None,
                    "boot": point.boot,
                    "repetition": point.repetition,
                    "valid": point.valid,
                    "invalid_reasons": list(point.invalid_reasons),
                    "figures": {metric.row.column: value for metric, value in point.figures.items()},
                    "uncertainties": {metric.row.column: value for metric, value in point.uncertainties.items()},
                }
                for series, point in self._measured
            ],
        }


def _figures(measured: Measured, site: Site) -> Table:
    used = [each for each in _FIGURES if any(each in point.figures for _, point in measured)]
    columns = (
        *(Column("number", is_figure=False), word("series"), word("kernel"), Column("boot")),
        *(Column(metric.row.short, metric.unit) for metric in used),
    )
    rows: list[tuple[str | Cell, ...]] = []
    for series, point in measured:
        figures = [f"{point.figures[metric]:.4g}" if metric in point.figures else ABSENT for metric in used]
        metric = next((metric for metric in used if metric in point.figures), Metric.THROUGHPUT)
        tone = Tone.PLAIN if point.valid else Tone.BAD
        rows.append(
            (
                Cell(f"{point.number:02d}{'' if point.valid else ' invalid'}", tone=tone),
                Cell(series.label, link=site.series(series.key, metric.value)),
                point.kernel.release if point.kernel else ABSENT,
                str(point.boot),
                *figures,
            )
        )
    return listing(columns, rows)


def why_from_index(error: ResultError | None, folder: str) -> str:
    known = "This is what the index knows of it."
    if error is None:
        return f"Its run folder is not reachable from here. {known}"
    # Where the folder is, is nobody's business on the network.
    told = error.what.replace(folder, Path(folder).name)
    return f"Its run folder cannot be read: {plain_line(told)}. {known}"
