"""Allure's result files, written from runs, for our Allure or any other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fsjoule.errors import ResultError, StorageError
from fsjoule.model import Run
from fsjoule.report.allure.builds import Builds
from fsjoule.report.allure.documents import Result, properties
from fsjoule.report.allure.metrics import Legend, legend_of
from fsjoule.report.allure.tests import kernel_label, run_tests
from fsjoule.report.allure.verdicts import gate_tests
from fsjoule.store.reader import LoadedRun


@dataclass(frozen=True, slots=True)
class WrittenResults:
    """Facts that result files cannot contain.

    `legend` says how to read metrics, `trends` has a test's query for the page of trends, by the name of the test's
    page, and `problems` names missing runs and figures.
    """

    legend: Legend
    trends: dict[str, str]
    problems: tuple[str, ...]


def write_results(builds: Builds, folder: Path, *, url: str = "", losses: Iterable[Result] = ()) -> WrittenResults:
    """Write the result files of the current runs, and of the trend's open `losses`, into a new folder.

    Raises StorageError, also if it is not empty.
    """
    legend: Legend = {}
    trends: dict[str, str] = {}
    problems = list(builds.problems)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise StorageError(f"{folder} is not empty", hint="give a new folder: Allure reads every file in it")
        for loaded in builds.current:
            tests = list(run_tests(loaded, lambda name, content: _write(folder / name, content)))
            try:
                tests += gate_tests(loaded)
            except ResultError as error:
                problems.append(f"{loaded.path.name}: {error.what}")
            for test in tests:
                _write_test(folder, test)
            legend |= _legend(loaded)
            trends |= {test.page_id: test.trend for test in tests if test.trend}
        for test in losses:
            _write_test(folder, test)
            trends[test.page_id] = test.trend
        _write(folder / "environment.properties", properties(environment(builds.current)).encode())
        _write_json(folder / "executor.json", executor(builds.name, url))
        _write_json(folder / "fsjoule-globals.json", {"errors": [{"message": problem} for problem in problems]})
    except OSError as error:
        raise StorageError(f"{folder} could not be written: {error.strerror or error}") from error
    return WrittenResults(legend, trends, tuple(problems))


def environment(current: Iterable[LoadedRun]) -> dict[str, str]:
    """The report's environment; where runs differ, all their values."""
    values: dict[str, dict[str, None]] = {}
    for loaded in current:
        for name, text in _environment(loaded.run).items():
            if text:
                values.setdefault(name, {})[text] = None
    return {name: "; ".join(texts) for name, texts in values.items()}


def executor(name: str, url: str) -> dict[str, Any]:
    """Who made the report: GitLab's pipeline, or a user. `url` is where the report will be read."""
    at = {"buildName": name, "reportName": name, **({"reportUrl": url} if url else {})}
    if os.environ.get("GITLAB_CI"):
        found = os.environ.get
        number = found("CI_PIPELINE_IID", "")
        return {
            **at,
            "name": "GitLab",
            "type": "gitlab",
            "url": found("CI_PROJECT_URL", ""),
            "buildUrl": found("CI_PIPELINE_URL", ""),
            "buildName": f"pipeline {number}, {name}" if number else name,
            **({"buildOrder": int(number)} if number.isdigit() else {}),
        }
    return {**at, "name": f"fsjoule {version('fsjoule')}", "type": "fsjoule"}


def _environment(run: Run) -> Mapping[str, str]:
    board = run.board
    return {
        "board": board.name if board else "",
        "place": run.place_names,
        "exporter": run.exporter_names,
        "LAVA job": (run.job.url or run.job.text) if run.job else "",
        "machine": board.machine if board else "",
        "storage": f"{board.storage}, {board.storage_bus}" if board else "",
        "kernel": ", ".join(facts.kernel_release for facts in run.boards.values()),
        "suite": run.plan.suite,
        "filesystems": ", ".join(run.plan.filesystems),
        "meter": "; ".join(f"{meter.serial_number}, firmware {meter.firmware}" for meter in run.meters),
        "simulated": "yes" if run.simulated else "no",
        "run": run.run_id,
        "seed": str(run.plan.seed),
        **run.versions,
    }


def _legend(loaded: LoadedRun) -> Legend:
    rows: Legend = {}
    for measurement in loaded.measurements:
        rows |= legend_of(measurement, kernel_label(loaded.run, measurement.kernel))
    return rows


def _write_test(folder: Path, test: Result) -> None:
    _write_json(folder / f"{test.uuid}-result.json", test.document())
    if test.metrics:
        _write_json(folder / f"{test.uuid}-perf.json", test.metrics_document())


def _write_json(file: Path, document: object) -> None:
    _write(file, json.dumps(document, indent=1).encode())


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)
