"""A gate on two boards in real time, places of a lab that is up: one is killed, and the verdict is reached."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from bench_runs import PROJECT, only_run, patient_environment
from lab_leftovers import assert_nothing_left

from fsjoule.lab import variables
from fsjoule.lab.coordinator import connected
from fsjoule.store.reader import LoadedRun
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths

pytestmark = pytest.mark.slow

_LIMIT_S = 3600.0
# The kernel against itself, in a figure that does not depend on how busy this computer is.
_POLICY = """\
[gate]
metrics = ["write-amplification"]
smallest_effect = 0.3
least_pairs = 2
budget_pairs = 6
"""
_GATE = (
    *("--baseline", "6.1", "--candidate", "6.1", "--allow-same", "--fs", "ext4", "--suite", "elc2015/kthreads"),
    *("--seed", "3", "--boards", "2", "--place-tag", "kind=board"),
)


@pytest.fixture(scope="module", name="running")
def _running(module_state: Path) -> Generator[lab.LabHandle]:
    handle = lab.up("pool", owner_pid=os.getpid(), board="board", boards=2)
    record = LabPaths.of("pool").read()
    assert record is not None
    yield handle
    assert lab.down("pool", force=True)
    assert_nothing_left(module_state, Path(record.devices))


@pytest.fixture(scope="module", name="environment")
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    beside = tmp_path_factory.mktemp("environment") / "patient"
    return patient_environment(beside, PROJECT / "env" / "virtual.yaml", boot_timeout=1800)


def _until(what: str, gate: subprocess.Popen[str], log: Path, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not done():
        assert gate.poll() is None, f"it ended before {what}:\n{log.read_text()}"
        assert time.monotonic() < deadline, f"not yet {what}:\n{log.read_text()}"
        time.sleep(0.2)


def _powered() -> list[str]:
    return [each.name for each in lab.status("pool").places if (each.board or {}).get("power") == "on"]


def _check(run: LoadedRun, killed: str) -> None:
    numbers = [each.number for each in run.measurements]
    assert len(set(numbers)) == len(numbers), "nothing twice"
    per_pair = len(run.run.plan.entries) // run.run.plan.repeat
    pairs = len(numbers) // per_pair
    assert numbers == [entry.number for entry in run.run.plan.entries[: pairs * per_pair]], "nothing lost"
    places: dict[int, set[str]] = {}
    for each in run.measurements:
        places.setdefault(each.repetition, set()).add(each.place)
    assert all(len(each) == 1 for each in places.values()), "kernels are compared within a board"
    assert {each.lab.place for each in run.run.places} == {"virtual", "virtual-2"}
    serials = [each.meter.serial_number for each in run.run.places if each.meter is not None]
    assert len(set(serials)) == len(serials) >= 1
    assert any(fault.place == killed for fault in run.run.faults), run.run.faults


def test_a_gate_reaches_its_verdict_though_one_of_its_boards_is_killed(
    running: lab.LabHandle, environment: Path, tmp_path: Path
) -> None:
    policy, log = tmp_path / "policy.toml", tmp_path / "log"
    policy.write_text(_POLICY)
    command = [Path(sys.executable).with_name("fsjoule"), "gate", "--lg-env", environment, *_GATE, "--policy", policy]
    environ = {**os.environ, **running.environment, "PYTHONUNBUFFERED": "1"}
    del environ["LG_PLACE"]
    results, answer = tmp_path / "results", tmp_path / "gate.json"
    with log.open("w") as told, answer.open("w") as out:
        gate = subprocess.Popen(
            [*command, "--results", results, "--json"], cwd=PROJECT, env=environ, stdout=out, stderr=told, text=True
        )
    try:
        _until("both boards boot", gate, log, lambda: len(_powered()) == 2)
        _kill_board("virtual-2")
        code = gate.wait(_LIMIT_S)
    finally:
        gate.kill()
        gate.wait()
    assert code == 0, log.read_text()
    assert json.loads(answer.read_text())["verdict"] == "unchanged or better"
    _check(only_run(results), "virtual-2")
    with variables(running.environment), connected() as coordinator:
        assert [name for name, place in coordinator.places.items() if place.acquired] == []


def _kill_board(place: str) -> None:
    """Kill the program of a place's board: its outlet is dead, and QEMU with it."""
    record = LabPaths.of("pool").read()
    assert record is not None
    programs = {service.name: service.process for service in record.services}
    programs[place.replace("virtual", "board")].send(signal.SIGKILL)
