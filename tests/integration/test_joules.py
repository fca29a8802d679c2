"""Blocks of tests of another project: measured, judged, stored, and read as a bench's measurements are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from joules_project import run_tests, write_project

from fsjoule.model import BlockWorkload, RunStatus
from fsjoule.store.reader import LoadedRun, load_run

FIRST = """
import pytest
from fsjoule.units import J, mJ
from meter import EMULATED

def test_two_blocks(target, joules):
    with joules("sync") as used:
        EMULATED.spend(2.0, 1.5)
    with joules("rest"):
        EMULATED.spend(1.0, 1.0)
    assert 2.99 * J < used.energy < 3.01 * J and used.seconds == 2.0
    assert 990 * mJ < used.net_energy < 1010 * mJ
    assert 0 < used.uncertainty < 0.1 * J and 1.49 < used.power < 1.51

@pytest.mark.joules(budget="5 J")
@pytest.mark.parametrize("seconds", [2, 4])
def test_within_and_beyond(seconds):
    EMULATED.spend(seconds, 1.5)

@pytest.mark.joules(budget="3 J", most=3)
def test_too_near(joules):
    with joules("near"):
        EMULATED.spend(2.0, 1.5)

def test_fails_by_itself(joules):
    with joules("x"):
        assert EMULATED is None

@pytest.mark.joules(budget="5 J")
def test_fails_in_a_repetition(joules):
    with joules("x"):
        EMULATED.spend(1, 1)
    assert EMULATED is None

def test_has_a_dead_meter(joules):
    EMULATED.dead = True
    with joules("x") as used:
        EMULATED.spend(1, 1)
    EMULATED.dead = False
    assert used.energy < 2 * J

@pytest.mark.joules(budget="5 J")
def test_has_a_dead_meter_and_a_budget(joules):
    EMULATED.dead = True
    with joules("x") as used:
        EMULATED.spend(1, 1)
    EMULATED.dead = False

def test_uses_one_name_twice(joules):
    with joules("x"):
        EMULATED.spend(1, 1)
    with joules("x"):
        EMULATED.spend(1, 1)

def test_nests(joules):
    with joules("outer"):
        with joules("inner"):
            EMULATED.spend(1, 1)

def test_reads_too_early(joules):
    with joules("x") as used:
        EMULATED.spend(1, 1)
        used.energy

@pytest.mark.joules(budget="5 J")
def test_measures_nothing(joules):
    pass

def test_gets_its_marker_late():
    EMULATED.spend(4, 1.5)

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.joules(budget="9 J")), 2])
def test_has_one_marked_parameter(x, request):
    EMULATED.spend(2, 1.5)
    assert ("joules" in request.fixturenames) == (x == 1)

def test_has_two_names_alike(joules):
    with joules("a/b"):
        EMULATED.spend(1, 1)
    with joules("a.b"):
        EMULATED.spend(1, 1)
"""

LATE = """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        if item.name == "test_gets_its_marker_late":
            item.add_marker(pytest.mark.joules(budget="5 J"))
"""

NIGHTS = """
import os
import pytest
from meter import EMULATED

@pytest.mark.joules(effect="5 %", most=4)
def test_sync(joules):
    watts, wobble = float(os.environ["WATTS"]), float(os.environ.get("WOBBLE", 0))
    with joules("sync"):
        EMULATED.spend(1.0, watts * (1 + wobble))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pump")
    write_project(root, FIRST)
    (root / "conftest.py").write_text(LATE)
    return root


@pytest.fixture(scope="module")
def answers(project: Path) -> dict[str, str]:
    found, done = run_tests(project)
    assert done.returncode == 1, done.stdout + done.stderr
    (project / "output").write_text(done.stdout)
    return found


@pytest.fixture(scope="module")
def run(project: Path, answers: dict[str, str]) -> LoadedRun:
    assert answers
    [folder] = (project / "results").iterdir()
    return load_run(folder)


def test_budgets_and_failures_are_told_apart(answers: dict[str, str]) -> None:
    assert answers == {
        "test_two_blocks": "passed",
        "test_within_and_beyond[2]": "passed",
        "test_within_and_beyond[4]": "failure",
        "test_too_near": "skipped",
        "test_fails_by_itself": "failure",
        "test_fails_in_a_repetition": "failure",
        "test_has_a_dead_meter": "error",
        "test_has_a_dead_meter_and_a_budget": "error",
        "test_uses_one_name_twice": "failure",
        "test_nests": "failure",
        "test_reads_too_early": "error",
        "test_measures_nothing": "error",
        "test_gets_its_marker_late": "failure",
        "test_has_one_marked_parameter[1]": "passed",
        "test_has_one_marked_parameter[2]": "passed",
        "test_has_two_names_alike": "passed",
    }


@pytest.mark.parametrize(
    "text",
    [
        "test_within_and_beyond[4] exceeds its budget of 5 J: 6 J ± 1.5 % by the meter (2 repetitions, 1 boot)",
        "not decided: test_too_near near is not sure to keep its budget of 3 J: 3 J ± 1.5 % by the meter",
        "block 'test_has_a_dead_meter x' has no energy: the meter fell silent",
        "there are two blocks 'x' in test_pump.py::test_uses_one_name_twice",
        "block 'inner' is inside another one",
        "has not ended: read its figures behind the with statement",
        "has the marker joules, and measured no block",
    ],
)
def test_each_says_why(text: str, project: Path, answers: dict[str, str]) -> None:
    assert answers
    assert text in (project / "output").read_text()


def test_the_run_folder_is_like_that_of_a_bench(run: LoadedRun, fsjoule: CommandLine) -> None:
    assert run.run.status is RunStatus.COMPLETE
    assert not run.damaged
    assert [entry.number for entry in run.run.plan.entries] == [each.number for each in run.measurements]
    first = run.measurements[0]
    assert first.workload == BlockWorkload("test_pump.py::test_two_blocks", "sync")
    assert first.slug == "unknown-block-test_pump.test_two_blocks.sync"
    assert first.simulated
    assert first.energy is not None
    assert first.energy.gross_mj.value == pytest.approx(3000, abs=5)
    trace = run.trace(first.number)
    assert trace is not None
    assert [mark.text for mark in trace.marks] == ["S1", "E1"]
    assert len({each.series for each in run.measurements if "alike" in each.workload.label}) == 2
    # Two repetitions of what was beyond its budget, three of what was too near.
    repetitions = [(each.workload.label, each.repetition) for each in run.measurements]
    assert ("test_within_and_beyond[4]", 2) in repetitions
    assert ("test_too_near near", 3) in repetitions
    shown = fsjoule("show", str(run.path), "--json")
    assert json.loads(shown.out)["run"]["plan"]["suite"] == run.run.plan.suite


@pytest.mark.slow
def test_the_history_decides_from_the_fourth_night(tmp_path: Path, fsjoule: CommandLine) -> None:
    write_project(tmp_path, NIGHTS)
    nights = [("2.0", 0.0, "skipped"), ("2.0", 0.004, "skipped"), ("2.0", -0.003, "skipped")]
    nights += [("2.0", 0.001, "passed"), ("2.1", 0.002, "failure")]
    output = ""
    for watts, wobble, answer in nights:
        found, done = run_tests(tmp_path, variables={"WATTS": watts, "WOBBLE": str(wobble)})
        assert found == {"test_sync": answer}, done.stdout
        output = done.stdout
    assert "uses more energy: +5.2 % against 4 runs (2 repetitions, 1 boot)" in output
    oldest, *_, newest = sorted((tmp_path / "results").iterdir())
    compared = fsjoule("compare", str(oldest), str(newest), "--json")
    [finding] = [each for each in json.loads(compared.out)["findings"] if each["metric"] == "operation-energy"]
    assert finding["ratio"] == pytest.approx(1.052, abs=0.002)


def test_a_wrong_marker_is_named(tmp_path: Path) -> None:
    write_project(tmp_path, "import pytest\n@pytest.mark.joules(budget='1.2')\ndef test_a(): pass\n")
    _, done = run_tests(tmp_path)
    assert "joules(budget='1.2') is not an energy" in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout


@pytest.mark.slow
def test_without_a_meter_it_is_skipped_or_refused(tmp_path: Path) -> None:
    write_project(tmp_path, "def test_a(joules):\n    with joules(): pass\n")
    (tmp_path / "bare.yaml").write_text("targets: {main: {drivers: {}}}\n")
    found, done = run_tests(tmp_path, environment="bare.yaml")
    assert found == {"test_a": "skipped"}
    assert "no joules: the environment file has no meter" in done.stdout
    found, done = run_tests(tmp_path, "--fsjoule-require-joules", environment="bare.yaml")
    assert found == {"test_a": "error"}
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_several_processes_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    write_project(tmp_path, "def test_a(joules):\n    with joules(): pass\n")
    found, done = run_tests(tmp_path, "-n", "2")
    assert found == {"test_a": "error"}
    assert "joules cannot be measured by several processes at once" in done.stdout
