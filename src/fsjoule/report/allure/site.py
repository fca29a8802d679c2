"""The whole report in one folder: Allure's pages, and the trends page that they link to."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fsjoule.errors import ConfigError, StorageError
from fsjoule.host.inside import shown
from fsjoule.model.labels import counted
from fsjoule.report.allure.builds import MOST, read_builds
from fsjoule.report.allure.generator import FIRST_PAGE, TRENDS_OF, Say, configuration, generate
from fsjoule.report.allure.history import history_lines
from fsjoule.report.allure.results import write_results
from fsjoule.report.allure.trends import loss_tests, trends_of
from fsjoule.report.allure.words import TRENDS
from fsjoule.report.forge import forge_of
from fsjoule.report.trend.page import trend_page
from fsjoule.store.confirmations import FOLDER, Confirmation, confirmations

_MARK: Final = "fsjoule-report"


@dataclass(frozen=True, slots=True)
class Site:
    """A finished report: its folder, the numbers of runs and earlier builds, and the missing parts."""

    folder: Path
    runs: int
    earlier: int
    problems: tuple[str, ...]


def make_site(
    paths: Sequence[Path],
    folder: Path,
    *,
    history: Sequence[Path] = (),
    index: str | None = None,
    url: str = "",
    forge: str | None = None,
    most: int = MOST,
    say: Say,
) -> Site:
    """Make a report of all run folders at and below `paths`, and replace an older one in `folder`.

    Run folders in `history` are earlier builds, whatever their date. The trends come from the runs, or from an `index`
    that knows more of them. `url` is where the report will be read, `forge` the commits' project. The report names
    damaged and missing runs. Raises ConfigError for a missing path, for what is no address of a project, for a folder
    with other contents, and if no run can replace an older report;
    FsjouleError if Allure fails. An older report then stays.
    """
    _check_folder(folder)
    commits = forge_of(forge) if forge else None
    builds = read_builds(paths, history=history, most=most)
    if not builds.current and (folder / _MARK).is_file():
        why = "; ".join(builds.problems)
        raise ConfigError(f"no run can be shown: {why}", hint=f"the report in {folder} is unchanged")
    known, faults = _confirmations((*paths, *history))
    with _writing(folder) as (work, made):
        results, lines = work / "results", work / "history.jsonl"
        by_time, by_kernel = trends_of(builds, known, index)
        written = write_results(builds, results, url=url, losses=loss_tests(by_time))
        lines.write_text(history_lines(builds.earlier), encoding="utf-8")
        rest = f"; left out: {counted(builds.left_out, 'older run')}" if builds.left_out else ""
        say(f"{counted(len(builds.current), 'run')}, history of {counted(len(builds.earlier), 'earlier build')}{rest}")
        generate(results, configuration(builds.name, written.legend, lines, made), work, say=say)
        (made / TRENDS_OF).write_text(json.dumps(written.trends), encoding="utf-8")
        (made / TRENDS).write_text(trend_page(by_time, by_kernel, report=FIRST_PAGE, forge=commits), encoding="utf-8")
        (made / _MARK).write_text(f"{builds.name}\n", encoding="utf-8")
    return Site(folder, len(builds.current), len(builds.earlier), (*written.problems, *faults))


def check_report(folder: Path) -> None:
    """Raise ConfigError if the folder contains no report."""
    if not (folder / _MARK).is_file():
        made = f"make one: fsjoule report build --output {shlex.quote(str(folder))}"
        raise ConfigError(f"there is no report in {folder}", hint=made)


def _check_folder(folder: Path) -> None:
    """Raise ConfigError for a folder with other contents, which must not be replaced."""
    if folder.exists() and not (folder.is_dir() and ((folder / _MARK).is_file() or not any(folder.iterdir()))):
        raise ConfigError(f"{folder} exists and is not a report", hint="give an empty or a new folder with --output")


@contextmanager
def _writing(folder: Path) -> Generator[tuple[Path, Path]]:
    """A folder to work in, and one for the report, which replaces the older report at the end."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent.resolve()) as work:
            made = Path(work) / "report"
            yield Path(work), made
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    except OSError as error:
        raise StorageError(f"the report could not be written to {folder}: {error.strerror or error}") from error


def _confirmations(paths: Sequence[Path]) -> tuple[list[Confirmation], list[str]]:
    """The confirmations beside the runs, and faults. Links are not followed, because the folders may be anyone's."""
    known: list[Confirmation] = []
    faults: list[str] = []
    for folder in (path / FOLDER for path in paths):
        if folder.is_symlink():
            faults.append(f"{shown(folder)} is a symbolic link, which is not followed")
            continue
        found, wrong = confirmations(folder)
        known += found
        faults += wrong
    return known, faults
