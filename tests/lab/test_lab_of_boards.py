"""A virtual lab of several boards: real processes, three places, two exporters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from lab_leftovers import assert_nothing_left
from waiting import wait_for

from fsjoule.errors import ConfigError, LabError
from fsjoule.host import process
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths, LabRecord
from fsjoule.virtual.lab.health import PlaceFaults

pytestmark = pytest.mark.slow

_NAME = "pool"
_PLACES = ("virtual", "virtual-2", "virtual-3")
_LIMIT_S = 60.0
_BENCH_S = 900.0
_PROJECT = Path(__file__).parents[2]


def _record() -> LabRecord:
    record = LabPaths.of(_NAME).read()
    assert record is not None
    return record


def _client(handle: lab.LabHandle, *arguments: str) -> str:
    client = Path(sys.executable).parent / "labgrid-client"
    return process.run([client, *arguments], timeout_s=_LIMIT_S, env=handle.environment).stdout.decode()


def _bench(handle: lab.LabHandle, place: str, results: Path) -> str:
    """What a bench at the place says that ends with a fault of the lab."""
    bench = [sys.executable, "-m", "pytest", str(_PROJECT / "tests" / "bench"), "--lg-env", "env/virtual.yaml"]
    options = ["--fs", "ext4", "--repeat", "1", "-k", "mkfs", "--results", str(results)]
    variables = {**handle.environment, "LG_PLACE": place}
    done = process.run([*bench, *options], timeout_s=_BENCH_S, env=variables, cwd=_PROJECT, check=False)
    said = done.stdout.decode()
    assert done.returncode == LabError.exit_code, said
    return said


@pytest.fixture(scope="module")
def running(module_state: Path) -> Generator[lab.LabHandle]:
    """The lab with all its places acquired."""
    handle = lab.up(_NAME, owner_pid=os.getpid(), boards=3, exporters=2)
    for place in _PLACES:
        _client(handle, "-p", place, "acquire")
    yield handle
    devices = Path(_record().devices)
    assert lab.down(_NAME)
    assert_nothing_left(module_state, devices)


def test_every_board_is_switched_and_written_by_itself(running: lab.LabHandle, tmp_path: Path) -> None:
    assert [line.split()[0] for line in _client(running, "places").splitlines()] == list(_PLACES)
    _client(running, "-p", "virtual-2", "power", "on")
    states = {place.name: place.board and place.board["power"] for place in lab.status(_NAME).places}
    assert states == {"virtual": "off", "virtual-2": "on", "virtual-3": "off"}
    _client(running, "-p", "virtual-2", "power", "off")
    for number, place in enumerate(_PLACES, 1):
        image = tmp_path / f"{number}.bin"
        image.write_bytes(os.urandom(1024 * 1024))
        for command in (("sd-mux", "host"), ("write-image", str(image)), ("sd-mux", "dut")):
            _client(running, "-p", place, *command)
    for number in range(1, 4):
        with LabPaths.of(_NAME).of_board(number).card.open("rb") as card:
            assert card.read(1024 * 1024) == (tmp_path / f"{number}.bin").read_bytes()


def test_status_and_list_tell_of_every_place(running: lab.LabHandle) -> None:
    status = lab.status(_NAME)
    assert status.state == "up"
    assert [each.name for each in status.places] == list(_PLACES)
    assert all(
        each.holder and f"place {each.name!r} is held by {each.holder}" in status.text() for each in status.places
    )
    assert [(record.name, state, len(record.boards)) for record, state in lab.running()] == [(_NAME, "up", 3)]
    assert running.place == "virtual"
    with pytest.raises(LabError, match="is up with 3 boards, but 4 are needed"):
        lab.up(_NAME, boards=4)


def test_waiters_are_served_by_priority_although_the_first_is_killed(running: lab.LabHandle, tmp_path: Path) -> None:
    """Three jobs wait for one tag. The place goes to the killed one's reservation, until that expires."""
    order, waiters = tmp_path / "order", dict[str, subprocess.Popen[bytes]]()
    with ExitStack() as closing:
        for name, priority in (("nightly", 0), ("request", 10), ("release", 20)):
            log = tmp_path / name
            fsjoule = Path(sys.executable).parent / "fsjoule"
            hold = (fsjoule, "place", "hold", "--place-tag", "number=2", "--wait", "10m")
            job = ("--priority", str(priority), "--", "sh", "-c", f"echo {name} $LG_PLACE >> {order}")
            waiters[name] = closing.enter_context(
                subprocess.Popen(
                    [*hold, *job],
                    env={**os.environ, **running.environment, "LG_PLACE": ""},
                    stdout=closing.enter_context(log.open("wb")),
                    stderr=subprocess.STDOUT,
                )
            )
            closing.callback(waiters[name].kill)
            wait_for(lambda log=log: "waiting for " in log.read_text(), log.read_text, _LIMIT_S)
        assert "number 1 of 3 in the queue" in (tmp_path / "release").read_text()
        waiters["release"].kill()
        _client(running, "-p", "virtual-2", "release")
        # labgrid gives a reservation 60 s, and looks every 30 s.
        ended = [waiters["request"], waiters["nightly"]]
        wait_for(lambda: all(each.poll() is not None for each in ended), order.exists, 5 * _LIMIT_S)
    assert [each.returncode for each in ended] == [0, 0]
    assert order.read_text().splitlines() == ["request virtual-2", "nightly virtual-2"]
    # It has expired, and is forgotten a minute later.
    wait_for(lambda: not _client(running, "reservations").strip(), order.read_text, 3 * _LIMIT_S)
    [place] = [each for each in lab.status(_NAME).places if each.name == "virtual-2"]
    assert place.holder is None
    _client(running, "-p", "virtual-2", "acquire")


def test_a_dead_part_is_a_fault_of_the_boards_that_need_it(running: lab.LabHandle, tmp_path: Path) -> None:
    """The last test with this lab."""
    coordinator = running.environment["LG_COORDINATOR"]
    assert [PlaceFaults(coordinator, place).faults() for place in _PLACES] == [(), (), ()]
    pids = {service.name: service.process.pid for service in _record().services}
    servers = Path(f"/proc/{pids['exporter']}/task/{pids['exporter']}/children").read_text().split()
    console = next(pid for pid in servers if b"/2/console" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(int(console), signal.SIGSTOP)
    assert [bool(PlaceFaults(coordinator, place).faults()) for place in _PLACES] == [False, True, False]
    os.kill(int(console), signal.SIGCONT)
    os.kill(pids["board-3"], signal.SIGKILL)
    deadline = time.monotonic() + _LIMIT_S
    while not (told := PlaceFaults(coordinator, "virtual-3").faults()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert told[0].startswith(f"the lab's board-3 (process {pids['board-3']}) was killed by SIGKILL")
    said = _bench(running, "virtual-3", tmp_path)
    assert "place 'virtual-3': fault 1 of 3 that make it bad, in a row (power)" in said
    assert "faults=1" in _client(running, "-p", "virtual-3", "show")
    os.kill(pids["exporter"], signal.SIGKILL)
    while not PlaceFaults(coordinator, "virtual").faults() or not PlaceFaults(coordinator, "virtual-2").faults():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(PlaceFaults(coordinator, "virtual-3").faults()) == 1
    assert lab.status(_NAME).state == "degraded"


@pytest.mark.parametrize("part", ["guardian", "supervisor"])
def test_a_killed_head_ends_all_boards(part: str, state: Path) -> None:
    lab.up(_NAME, boards=2)
    record = _record()
    head = getattr(record, part)
    head.send(signal.SIGKILL)
    assert_nothing_left(state, Path(record.devices))


def test_a_board_that_does_not_come_up_is_named_and_all_go_down(state: Path) -> None:
    logs = LabPaths.of(_NAME).of_board(2).logs
    logs.parent.mkdir(parents=True)
    logs.touch()  # a file where the board needs a folder
    with pytest.raises(LabError, match=r"^the lab's board-2 ended with"):
        lab.up(_NAME, boards=2)
    assert_nothing_left(state, state / "devices")


def test_more_exporters_than_boards_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 boards cannot have 3 exporters"):
        lab.up(_NAME, boards=2, exporters=3)
