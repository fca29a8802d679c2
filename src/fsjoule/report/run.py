"""A run folder for people: its tables in the terminal, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from fsjoule.errors import ResultError, not_written
from fsjoule.host.files import write_file
from fsjoule.model import Trace
from fsjoule.report.answer import answer
from fsjoule.report.summary import Summary, summarise
from fsjoule.report.text import print_summary
from fsjoule.store.folder import GATE_FILE, PAGE
from fsjoule.store.gate import gate_of
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.verdicts.filesystems import contests

if TYPE_CHECKING:
    from fsjoule.report.site import Site

# Drawing one takes 0.1 s, and whoever asks a service for a page waits for it.
_MOST_TRACES: Final = 60


def write_report(folder: Path, file: Path | None = None) -> Path:
    """Write `report.html` into a run folder, or its page into `file`.

    Raises ResultError if the folder cannot be read, ConfigError or StorageError if the page cannot be written.
    """
    loaded = load_run(folder)
    path = file or loaded.path / PAGE
    page = run_page(loaded)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # It replaces the old file, which may be a link to another place.
        write_file(path, page.encode())
    except OSError as error:
        raise not_written(f"{path} could not be written", error, hint="name another file: --output FILE") from error
    return path


def run_page(loaded: LoadedRun, *, site: Site | None = None) -> str:
    """The page of a run as HTML, with the answer of its gate, if a gate measured it."""
    from fsjoule.report.page import render_page  # noqa: PLC0415 - charts take long to import
    from fsjoule.verdicts.advice.of_run import advice_of  # noqa: PLC0415 - as above

    damaged = dict(loaded.damaged)
    gated = None
    try:
        gated = gate_of(loaded)
    except ResultError as error:
        damaged[GATE_FILE] = error.what
    summary = summarise(loaded.run, loaded.measurements, damaged, loaded.altered())
    few = site is None or len(loaded.measurements) <= _MOST_TRACES
    trace_of = loaded.trace if few else _not_drawn
    return render_page(summary, loaded.measurements, trace_of, gated, advice_of(loaded), site=site)


def _not_drawn(_number: int) -> Trace | None:
    raise ResultError(
        f"traces of runs of more than {_MOST_TRACES} measurements are not drawn here; fsjoule report page draws them"
    )


def show_run(loaded: LoadedRun, console: Console, *, wide: bool = False) -> None:
    """Print the tables of a run."""
    page = loaded.path / PAGE
    summary = summary_of(loaded)
    found = answer(summary, contests(loaded.measurements))
    page = page if page.exists() else None
    print_summary(console, summary, found, folder=loaded.path, page=page, wide=wide)


def summary_of(loaded: LoadedRun) -> Summary:
    return summarise(loaded.run, loaded.measurements, loaded.damaged, loaded.altered())
