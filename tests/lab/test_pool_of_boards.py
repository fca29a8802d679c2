"""One run on places of a lab that is up: whatever ends it or a part of it, its places are free again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from bench_runs import PROJECT, only_run, patient_environment
from lab_leftovers import assert_nothing_left
from pool_benches import pool_bench

from fsjoule.lab import variables
from fsjoule.lab.coordinator import connected
from fsjoule.model import RunStatus
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths

pytestmark = pytest.mark.slow

_BENCH = (
    *("--suite", "energy-emmc-2025", "--fs", "ext4", "--provision", "scratch", "--size-factor", str(1 / 128)),
    *("--kernel", "6.1", "--repeat", "3", "--seed", "3", "-k", "randread-16k"),
    *("--boards", "2", "--place-tag", "kind=deterministic"),
)
# A reservation of a killed process lives two minutes.
_FREE_S = 240.0


@pytest.fixture(scope="module", name="running")
def _running(module_state: Path) -> Generator[lab.LabHandle]:
    handle = lab.up("pool", owner_pid=os.getpid(), board="deterministic", boards=2, exporters=2)
    record = LabPaths.of("pool").read()
    assert record is not None
    yield handle
    assert lab.down("pool", force=True)
    assert_nothing_left(module_state, Path(record.devices))


@pytest.fixture(scope="module", name="environment")
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    beside = tmp_path_factory.mktemp("environment") / "patient"
    return patient_environment(beside, PROJECT / "env" / "deterministic.yaml", boot_timeout=1800)


def _in_use(running: lab.LabHandle) -> list[str]:
    """Places and reservations that somebody has."""
    with variables(running.environment), connected() as coordinator:
        held = [name for name, place in coordinator.places.items() if place.acquired]
        return held + [f"reservation {each.token}" for each in coordinator.reservations()]


def _powered() -> list[str]:
    return [each.name for each in lab.status("pool").places if (each.board or {}).get("power") == "on"]


def _assert_free(running: lab.LabHandle) -> None:
    deadline = time.monotonic() + _FREE_S
    while used := _in_use(running):
        assert time.monotonic() < deadline, used
        time.sleep(1.0)


def test_what_a_killed_board_process_had_to_do_moves_and_its_place_is_free(
    running: lab.LabHandle, environment: Path, tmp_path: Path
) -> None:
    with pool_bench(tmp_path, environment, running, *_BENCH) as bench:
        bench.until("both boards boot", lambda: len(_powered()) == 2)
        victim = bench.workers[0]
        os.kill(victim, signal.SIGKILL)
        assert bench.end() == 0, bench.text
    run = only_run(tmp_path)
    assert run.run.status is RunStatus.COMPLETE
    assert len({each.number for each in run.measurements}) == len(run.measurements) == 3
    [fault] = run.run.faults
    assert "board 1: its process was killed by SIGKILL" in fault.what
    assert fault.what.startswith(("place virtual at ", "place virtual-2 at "))
    _assert_free(running)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_run_that_is_ended_gives_all_its_places_back(
    end: signal.Signals, running: lab.LabHandle, environment: Path, tmp_path: Path
) -> None:
    with pool_bench(tmp_path, environment, running, *_BENCH) as bench:
        bench.until("both places are its own", lambda: bench.text.count(" is ready, place ") == 2)
        assert {"virtual", "virtual-2"} <= set(_in_use(running))
        bench.bench.send_signal(end)
        assert bench.end() == (128 + end if end is signal.SIGTERM else -end), bench.text
        _assert_free(running)
    assert _powered() == []
