"""The page of a comparison: two runs, kernels or branches of the index, by the names that `fsjoule compare` takes."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.model.metrics import Metric, metrics_named
from fsjoule.model.series import Where
from fsjoule.report.comparison.document import to_document
from fsjoule.report.comparison.page import render_page
from fsjoule.report.service.asked import AskedComparison
from fsjoule.report.service.settings import Explain
from fsjoule.report.site import Site
from fsjoule.report.template import render
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import stats
from fsjoule.store.index.run_list import WhichRuns, list_runs
from fsjoule.store.sides import Sources
from fsjoule.verdicts.compare import compare_sides
from fsjoule.verdicts.comparison import Compared
from fsjoule.verdicts.explanation.changes import Explanation

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


def html(compared: Compared, site: Site, explain: Explain | None) -> str:
    return render_page(compared, site, _explained(compared, explain))


def document(compared: Compared) -> dict[str, Any]:
    return to_document(compared)


def form(index: Index, site: Site) -> str:
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
