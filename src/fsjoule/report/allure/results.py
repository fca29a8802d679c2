"""Allure's result files, written from runs and from the gate's answers in them, for our Allure or any other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ResultError, StorageError
from fsjoule.model import Run
from fsjoule.model.labels import counted
from fsjoule.report.allure.builds import Builds
from fsjoule.report.allure.documents import REGRESSION, UNDECIDED, AllureStatus, Result, properties
from fsjoule.report.allure.tests import Legend, kernel_label, legend_of, milliseconds, run_tests, uuid_of
from fsjoule.report.findings import figure_text
from fsjoule.report.gate import command, headline
from fsjoule.report.markdown import named_list, plain
from fsjoule.report.numbers import advantage_text
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.gate import Gated, Tested, gate_of
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
                if (gated := gate_of(loaded)) is not None:
                    tests += [_test(loaded, gated, one) for one in gated.findings]
            except ResultError as error:
                problems.append(f"{loaded.path.name}: {error.what}")
            for test in tests:
                _write_test(folder, test)
            for measurement in loaded.measurements:
                legend |= legend_of(measurement, kernel_label(loaded.run, measurement.kernel))
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


def _write_test(folder: Path, test: Result) -> None:
    _write_json(folder / f"{test.uuid}-result.json", test.document())
    if test.metrics:
        _write_json(folder / f"{test.uuid}-perf.json", test.metrics_document())


def _write_json(file: Path, document: object) -> None:
    _write(file, json.dumps(document, indent=1).encode())


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)


_STATUS: Final = {Outcome.REGRESSED: AllureStatus.FAILED, Outcome.UNDECIDED: AllureStatus.SKIPPED}
_BEGINNING: Final = {Outcome.REGRESSED: REGRESSION, Outcome.UNDECIDED: UNDECIDED}


def _test(loaded: LoadedRun, gated: Gated, one: Tested) -> Result:
    run, subject = loaded.run, one.subject
    told = _told(gated, one)
    start_ms = milliseconds(run.started_utc)
    sides = "\n".join(named_list([("baseline", gated.baseline.title), ("candidate", gated.candidate.title)]))
    again = f"\n\nTo repeat it:\n\n    {command(gated)}" if gated.command else ""
    return Result(
        uuid=uuid_of(run, f"gate-{subject.key}-{one.metric}"),
        identity=f"{subject.series.board}/gate/{subject.key}/{one.metric}",
        name=f"gate: {subject.label}, {one.metric}",
        status=_STATUS.get(one.outcome, AllureStatus.PASSED),
        start_ms=start_ms,
        stop_ms=milliseconds(run.finished_utc) if run.finished_utc else start_ms,
        labels=(
            ("board", subject.series.board),
            ("kernel", gated.candidate.name),
            ("filesystem", subject.series.filesystem),
            ("suite", "gate"),
            ("framework", "fsjoule"),
            *((("tag", "simulated"),) if subject.simulated else ()),
        ),
        message=f"{_BEGINNING[one.outcome]}: {told}" if one.outcome in _BEGINNING else "",
        description=f"{plain(headline(gated))}\n\n- {plain(told)}\n{sides}{again}\n",
        about=(("baseline", gated.baseline.name), ("candidate", gated.candidate.name), ("run", run.run_id)),
    )


def _told(gated: Gated, one: Tested) -> str:
    """`ext4 write-16k, throughput: 10.0 % slower (95 %: 9.1 to 11.0 %), 8.21 MiB/s against 9.12 MiB/s, 5 pairs`."""
    known = [figure for figure in (one.candidate, one.baseline) if figure is not None]
    figures = " against ".join(f"{figure_text(figure)} {one.metric.unit}".strip() for figure in known)
    change = "" if one.ratio is None else advantage_text(one.metric, one.ratio, one.interval)
    simulated = " (simulated)" if one.subject.simulated else ""
    told = ", ".join(filter(None, (change, figures))) or "no figures"
    return (
        f"{one.subject.label}, {one.metric}{simulated}: {told}, {counted(one.basis.pairs, 'pair')} of boots; "
        f"{gated.candidate.name} against {gated.baseline.name}; what matters is {100 * one.matters:g} %"
    )
