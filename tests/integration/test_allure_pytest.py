"""pytest's --alluredir and `fsjoule report allure` tell the same of a run over fakes of the ports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from interruptible import interruptible

from fsjoule.report.allure.builds import read_builds
from fsjoule.report.allure.results import write_results

PROJECT = Path(__file__).parents[2]
MEASURE = (PROJECT / "tests" / "bench" / "test_suite.py").read_text()
# A bench whose lab is fakes of the ports; plugin, fixtures, run folder and allure-pytest are the real ones.
BENCH = """\
import os, signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from fake_bench import AFTER, COUNTERS, FACTS, FIO_JSON, IMAGE, PROFILE, answer
from traces import trace_of

from fsjoule import pytest_plugin
from fsjoule.bench import fio
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError
from fsjoule.host import interrupts
from fsjoule.model import KernelFacts, KernelOrigin, LabStep, Mark, Plan, Run, RunStatus
from fsjoule.runs.resume import resume
from fsjoule.store.folder import RunFolder
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell

FAULTY = os.environ.get("FAULTY", "").split()
RESUMED = resume(Path(os.environ["RESUMED"])) if "RESUMED" in os.environ else None
STEPS = LabStep("transition", "Strategy", 1, 1_000, 5200, {"status": "booted"}), LabStep("on", "Power", 2, 2_000, 3)
LABEL = "new"


@dataclass
class Board(FakeBoard):
    def boot(self, seed=1):
        self.boots += 1
        if str(self.boots) in FAULTY:
            raise BoardError(f"boot {self.boots} hung\\nno login", transient=True, hint="look at its supply")
        if str(self.boots) == os.environ.get("INTERRUPTED"):
            os.kill(os.getpid(), signal.SIGINT)
        self.powered = True
        return self.shell


def new_run():
    entries = plan_entries(suite("quick"), Planning(("ext4",), (LABEL,), repeat=2, seed=3)).entries
    entries = tuple(each for each in entries if each.workload.slug in ("boot", "write-16k", "mkfs"))
    plan = Plan("quick", ("ext4",), (LABEL,), 2, 3, {}, entries)
    kernels = (KernelFacts(LABEL, LABEL, KernelOrigin.DEBIAN, FACTS.kernel_release, "0"),)
    command = ("pytest", "tests/bench", "--alluredir", "here", "--clean-alluredir")
    utc = "2026-01-01T00:00:00Z"
    return Run("id", utc, RunStatus.RUNNING, simulated=True, plan=plan, kernels=kernels, command=command)


RUN = RESUMED.going_on("2026-01-02T00:00:00Z", RESUMED.run.plan) if RESUMED else new_run()
STORE = RESUMED.folder() if RESUMED else RunFolder(Path("results"), board=PROFILE.name)


def meter():
    if not FAULTY:
        return FakeMeter()  # it is silent: drawing traces takes seconds
    # One of the measurements has its marks; all others that send some are invalid for the lack of them.
    number = next(each.number for each in RUN.plan.entries if each.workload.slug == "write-16k")
    stop_us = 2_510_000 + fio.parse(FIO_JSON.decode(), ["--rw=write"]).runtime_ns // 1000
    marks = [Mark(2_500_000, f"S{number}"), Mark(stop_us, f"E{number}")]
    return FakeMeter(trace_of(np.full(3000, 2500), marks=marks))


def pytest_configure(config):
    interrupts.install()
    config.add_cleanup(interrupts.restore)
    config.stash[pytest_plugin._PLAN] = RUN.plan
    pytest_plugin.tell_allure(config, lambda: STORE._path)


@pytest.fixture(scope="session")
def bench():
    duration = b"1.00 1.02 1.02 1\\n0m0.0s 0m0.0s\\n0m0.01s 0m0.01s\\n"
    files = {onboard.RESULT: FIO_JSON, onboard.BEFORE: COUNTERS, onboard.AFTER: AFTER, onboard.DURATION: duration}
    board = Board(FakeShell(answer, files), FACTS, IMAGE)
    kept = RESUMED.kept if RESUMED else ()
    parts = (RUN, PROFILE, board, meter(), STORE, FakeClock(1e9), lambda _: None)
    bench = BoardBench(*parts, kept=kept, take_steps=lambda: STEPS)
    bench.begin()
    yield bench
    bench.finish(interrupts.reason())
"""
OWN_TEST = """\
import allure

@allure.feature("speed")
def test_fast(measurement, planned):
    allure.dynamic.parameter("limit", 1e9)
    allure.attach("as fast as that", "own.txt", allure.attachment_type.TEXT)
    with allure.step("compare"):
        assert (measurement.throughput_mib_per_s or 0) > 1e9

def test_other():
    pass
"""

Document = dict[str, Any]


def measured(folder: Path, *options: str, test: str = MEASURE, **environment: str) -> Path:
    """Allure's results, as pytest has written them."""
    (folder / "conftest.py").write_text(BENCH)
    (folder / "test_it.py").write_text(test)
    results = folder / f"allure-{len(list(folder.glob('allure-*')))}"
    argv = ("-m", "pytest", "-p", "no:cacheprovider", "--alluredir", results, *options, ".")
    done = subprocess.run(
        interruptible(sys.executable, *argv),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "tests" / "helpers"), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "INTERNALERROR" not in done.stdout + done.stderr, done
    assert any(results.iterdir()), done
    return results


def told(results: Path) -> list[Document]:
    """What result files say, but for their uuids and for what is empty."""
    documents = [json.loads(path.read_text()) for path in results.glob("*-result.json")]
    for document in documents:
        del document["uuid"]
        for attachment in document.get("attachments", ()):
            attachment["content"] = (results / attachment.pop("source")).read_bytes()
    return sorted(map(without_empty, documents), key=lambda each: json.dumps(each, sort_keys=True, default=repr))


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_empty(each) for name, each in value.items() if each not in ("", [], {})}
    return [without_empty(each) for each in value] if isinstance(value, list) else value


def metrics(results: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in results.glob("*-perf.json")}


def reported(folder: Path) -> Path:
    """The same from the run folder, as `fsjoule report allure` makes it."""
    made = folder / f"reported-{len(list(folder.glob('reported-*')))}"
    write_results(read_builds([folder / "results"]), made)
    return made


def statuses(results: Path) -> list[str]:
    return sorted(each["status"] for each in told(results))


def assert_equal(folder: Path, results: Path) -> None:
    made = reported(folder)
    assert told(results) == told(made)
    assert metrics(results) == metrics(made)


def test_a_run_with_faults_has_equal_results_both_ways(tmp_path: Path) -> None:
    # The first two boots hang, before the board is known, and the next repetition's first; some entries are not chosen.
    results = measured(tmp_path, "-k", "not mkfs", FAULTY="1 2 4")
    assert_equal(tmp_path, results)
    documents = told(results)
    messages = [each.get("statusDetails", {}).get("message", "") for each in documents]
    assert sum(message.startswith("lab fault, transient: boot ") for message in messages) == 3
    assert sum(message.startswith("invalid measurement: ") for message in messages) == 2
    assert sum(message.startswith("not measured: ") for message in messages) == 2
    assert any(each["status"] == "passed" and each["steps"] for each in documents)
    # Before and after the board was known.
    assert {each["fullName"].partition("/")[0] for each in documents} == {"fake"}
    assert metrics(results)
    scripts = [a["content"] for each in documents for a in each.get("attachments", ()) if a["name"] == "repeat it.sh"]
    assert scripts
    assert not any(b"alluredir" in script for script in scripts)


def test_what_ctrl_c_and_going_on_leave_is_equal_both_ways(tmp_path: Path) -> None:
    results = measured(tmp_path, INTERRUPTED="2")
    assert_equal(tmp_path, results)
    skipped = [each for each in told(results) if each["status"] == "skipped"]
    assert {each["statusDetails"]["message"] for each in skipped} == {"not measured: interrupted"}
    assert len(skipped) == 3
    (run,) = (tmp_path / "results").iterdir()
    again = measured(tmp_path, RESUMED=str(run))
    assert_equal(tmp_path, again)
    assert len(told(again)) == 6
    assert "skipped" not in statuses(again)
    assert {each["historyId"] for each in told(again)} == {each["historyId"] for each in told(results)}


def test_what_the_author_of_a_test_adds_stays(tmp_path: Path) -> None:
    results = measured(tmp_path, "-k", "r1-ext4-write or other", test=OWN_TEST)
    own = next(each for each in told(results) if each["status"] == "failed")
    of_run = next(each for each in told(reported(tmp_path)) if each["status"] == "passed")
    assert (own["fullName"], own["name"]) == (of_run["fullName"], of_run["name"])
    assert own["statusDetails"]["message"].startswith("AssertionError")
    assert {"name": "feature", "value": "speed"} in own["labels"]
    assert {"name": "limit", "value": "1000000000.0"} in own["parameters"]
    assert own["steps"][-1]["name"] == "compare"
    assert own["attachments"][-1]["content"] == b"as fast as that"
    other = next(each for each in told(results) if each["name"] == "test_other")
    assert other["fullName"] == "test_it#test_other"
    containers = [json.loads(path.read_text()) for path in results.glob("*-container.json")]
    uuids = {json.loads(path.read_text())["uuid"] for path in results.glob("*-result.json")}
    assert any(each["befores"][0]["name"] == "bench" and set(each["children"]) & uuids for each in containers)
