"""The whole report in one folder: Allure's pages, the trends page that they link to, its history, and its server."""

from __future__ import annotations

import io
import json
import logging
import re
import shlex
import shutil
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, BinaryIO, Final

from fsjoule.errors import ConfigError, StorageError
from fsjoule.host.inside import shown
from fsjoule.model.labels import counted
from fsjoule.report.allure.builds import MOST, Build, build_name, read_builds
from fsjoule.report.allure.documents import TRENDS, Result
from fsjoule.report.allure.generator import FIRST_PAGE, TRENDS_OF, configuration, generate
from fsjoule.report.allure.results import write_results
from fsjoule.report.allure.tests import milliseconds, run_tests
from fsjoule.report.allure.trends import loss_tests, trends_of
from fsjoule.report.forge import forge_of
from fsjoule.report.trend.page import trend_page
from fsjoule.store.confirmations import FOLDER, Confirmation, confirmations

_log: Final = logging.getLogger(__name__)

_MARK: Final = "fsjoule-report"


@dataclass(frozen=True, slots=True)
class AllureReport:
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
) -> AllureReport:
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
        _log.info(
            "%s, history of %s%s",
            counted(len(builds.current), "run"),
            counted(len(builds.earlier), "earlier build"),
            rest,
        )
        generate(results, configuration(builds.name, written.legend, lines, made), work)
        (made / TRENDS_OF).write_text(json.dumps(written.trends), encoding="utf-8")
        (made / TRENDS).write_text(trend_page(by_time, by_kernel, report=FIRST_PAGE, forge=commits), encoding="utf-8")
        (made / _MARK).write_text(f"{builds.name}\n", encoding="utf-8")
    return AllureReport(folder, len(builds.current), len(builds.earlier), (*written.problems, *faults))


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


def history_lines(earlier: Iterable[Build]) -> str:
    """`history.jsonl` of builds in the order of time, without links to their own reports, which are unknown."""
    return "".join(f"{json.dumps(_line(build), separators=(',', ':'))}\n" for build in earlier)


def _line(build: Build) -> dict[str, Any]:
    tests = [test for loaded in build for test in run_tests(loaded)]
    newest = build[-1].run
    return {
        "uuid": newest.run_id,
        "name": build_name(build),
        "timestamp": milliseconds(newest.started_utc),
        "knownTestCaseIds": sorted({test.case_id for test in tests}),
        # The last retry counts.
        "testResults": {test.history_id: test.history_document() for test in tests},
        "metrics": _means(tests),
        "url": "",
    }


def _means(tests: Iterable[Result]) -> dict[str, float]:
    """A build's figures: means over repetitions, as Allure computes them for the current build."""
    values: dict[str, list[float]] = {}
    for test in tests:
        for metric in test.metrics:
            values.setdefault(metric.key, []).append(metric.value)
    return {key: fmean(each) for key, each in values.items()}


_LOOPBACK: Final = "127.0.0.1"
_NAMES: Final = (_LOOPBACK, "localhost")


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files below one folder without a log, and without the browser's cache, because reports are replaced."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        del format, args

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        # By another name it would be a page elsewhere, in the same browser, that reads the report.
        if re.sub(r":\d*$", "", self.headers.get("Host", "")) not in _NAMES:
            self.send_error(HTTPStatus.BAD_REQUEST, "this report is not called so")
            return None
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()


@contextmanager
def serving(report: Path, port: int) -> Generator[str]:
    """Serve a report on the loopback interface; yields its URL. Raises ConfigError without a report or a free port."""
    check_report(report)
    try:
        server = ThreadingHTTPServer((_LOOPBACK, port), partial(_Quiet, directory=str(report)))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}", hint="choose another with --port") from error
    with server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{_LOOPBACK}:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
