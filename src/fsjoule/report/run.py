"""A run folder for people: its tables in the terminal, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from fsjoule.errors import StorageError
from fsjoule.report.summary import Summary, summarise
from fsjoule.report.text import print_summary
from fsjoule.store.files import write_file
from fsjoule.store.reader import LoadedRun, load_run

PAGE: Final = "report.html"


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run folder. Raises ResultError if the folder cannot be read, StorageError."""
    from fsjoule.report.page import render_page  # noqa: PLC0415 - charts take long to import

    loaded = load_run(folder)
    path = loaded.path / PAGE
    page = render_page(summary_of(loaded), loaded.measurements, loaded.trace)
    try:
        # It replaces the old file, which may be a link to another place.
        write_file(path, page.encode())
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}") from error
    return path


def show_run(folder: Path, console: Console) -> None:
    """Print the tables of a run folder. Raises ResultError if it cannot be read."""
    loaded = load_run(folder)
    page = loaded.path / PAGE
    print_summary(console, summary_of(loaded), folder=loaded.path, page=page if page.exists() else None)


def summary_of(loaded: LoadedRun) -> Summary:
    return summarise(loaded.run, loaded.measurements, loaded.damaged)
