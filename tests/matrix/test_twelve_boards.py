"""One run of a matrix on twelve boards behind three exporters; six boards fail while they boot.

It takes ten minutes on four cores that do nothing else (`make test-matrix`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from bench_runs import PROJECT, only_run, patient_environment, run_bench, told
from lab_leftovers import assert_nothing_left
from pool_benches import LIMIT_S, pool_bench

from fsjoule.host import process
from fsjoule.lab import variables
from fsjoule.lab.coordinator import connected
from fsjoule.lab.states import BAD_AFTER, states
from fsjoule.model import RunStatus
from fsjoule.model.places import PlaceHealth
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths

_LAB = "matrix"
_BOARDS, _EXPORTERS = 12, 3
# 14 boots, each with two measurements: more than boards.
_MATRIX = (
    *("--suite", "energy-emmc-2025", "--fs", "ext4,f2fs", "--provision", "scratch", "--size-factor", str(1 / 128)),
    *("--kernel", "6.1,6.12", "--repeat", "7", "--seed", "19", "-k", "randread-16k"),
)
_KILLED, _FROZEN = "virtual-2", "virtual-11"
_EXPORTER, _BEHIND = "exporter-2", ("virtual-5", "virtual-6", "virtual-7", "virtual-8")
_WHY = {
    _KILLED: "the lab's board-2 (process ",
    _FROZEN: "the lab's board-11 (process ",
    **dict.fromkeys(_BEHIND, f"the lab's {_EXPORTER} (process "),
}


@pytest.fixture(name="state")
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    for name in ("LG_COORDINATOR", "LG_PLACE", "LG_ENV", "FSJOULE_SETUP_STARTED"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state"


@pytest.fixture(name="running")
def _running(state: Path) -> Generator[lab.LabHandle]:
    handle = lab.up(_LAB, owner_pid=os.getpid(), board="deterministic", boards=_BOARDS, exporters=_EXPORTERS)
    record = LabPaths.of(_LAB).read()
    assert record is not None
    yield handle
    lab.down(_LAB, force=True)
    assert_nothing_left(state, Path(record.devices))


def _client(running: lab.LabHandle, *arguments: str) -> str:
    client = Path(sys.executable).parent / "labgrid-client"
    return process.run([client, *arguments], timeout_s=60, env=running.environment).stdout.decode()


def _all_on(places: set[str]) -> bool:
    return places <= {each.name for each in lab.status(_LAB).places if (each.board or {}).get("power") == "on"}


def test_what_six_of_twelve_boards_had_to_do_moves_to_the_others(running: lab.LabHandle, tmp_path: Path) -> None:
    environment = patient_environment(tmp_path / "one", PROJECT / "env" / "deterministic.yaml", boot_timeout=1800)
    record = LabPaths.of(_LAB).read()
    assert record is not None
    programs = {service.name: service.process for service in record.services}
    options = (*_MATRIX, "--boards", str(_BOARDS), "--place-tag", "kind=deterministic")
    with pool_bench(tmp_path / "many", environment, running, *options, **{BAD_AFTER: "1"}) as bench:
        bench.until("all boards boot", lambda: _all_on({each.place for each in record.boards}))
        programs["board-2"].send(signal.SIGKILL)
        programs["board-11"].send(signal.SIGSTOP)
        programs[_EXPORTER].send(signal.SIGKILL)
        assert bench.end() == 0, bench.text
    (tmp_path / "told.txt").write_text(bench.text)
    assert _client(running, "reservations").strip() == ""
    with variables(running.environment), connected() as coordinator:
        places = states(coordinator)
    assert {each.name: each.state for each in places} == {
        each.place: PlaceHealth.BAD if each.place in _WHY else PlaceHealth.GOOD for each in record.boards
    }
    assert [each.holder for each in places] == [""] * _BOARDS

    together = only_run(tmp_path / "many")
    assert together.run.status is RunStatus.COMPLETE
    assert {each.what.split()[1] for each in together.run.faults} == set(_WHY)
    page = (together.path / "report.html").read_text()
    for fault in together.run.faults:
        place = fault.what.split()[1]
        assert fault.what.startswith(f"place {place} at {fault.ended_utc[11:19]} UTC: "), fault.what
        assert _WHY[place] in fault.what
        assert fault.what.partition("\n")[0].split(" (process ")[0].replace("'", "&#39;") in page, fault.what

    alone = run_bench(tmp_path / "one", *_MATRIX, environment=environment, timeout_s=LIMIT_S)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    serial = only_run(tmp_path / "one")
    assert {each.place for each in together.measurements} <= {each.name for each in places} - set(_WHY)
    here = [{**told(each), "place": ""} for each in together.measurements]
    assert here == [told(each) for each in serial.measurements]
    assert sorted(each.number for each in serial.measurements) == [each.number for each in together.measurements]
