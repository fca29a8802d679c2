"""What is said of a lab's programs that died or stand still: real processes, of which a record tells."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsjoule.errors import BoardError, LabError, MeterError, Part
from fsjoule.host.process_ref import ProcessRef, ending, seen
from fsjoule.lab.meterdriver import ExplainedMeter
from fsjoule.runs.parallel.worker import PoolPlaceHealth
from fsjoule.testing import FakeHealth, FakeMeter
from fsjoule.virtual.lab.files import BoardRecord, Ended, LabPaths, LabRecord, ServiceRecord
from fsjoule.virtual.lab.health import (
    PlaceFaults,
    coordinator_faults,
    faults_of,
)

_PLACE = "virtual"
_NAMES = ("coordinator", "board", "meter", "exporter")


@dataclasses.dataclass
class _Lab:
    """Sleeping programs in the place of a lab's, and the port of its coordinator."""

    paths: LabPaths
    programs: dict[str, subprocess.Popen[bytes]]
    port: socket.socket

    @property
    def coordinator(self) -> str:
        return f"127.0.0.1:{self.port.getsockname()[1]}"

    def note(self, **ended: Ended) -> LabRecord:
        services = tuple(
            ServiceRecord(name, _reference(program), f"/log/{name}", ended.get(name))
            for name, program in self.programs.items()
        )
        begun = "2026-01-01T00:00:00+00:00"
        record = LabRecord("x", begun, "/nowhere", self.coordinator, 22, "", "", services=services)
        self.paths.write(record)
        return record

    def signal(self, name: str, sig: signal.Signals) -> int:
        program = self.programs[name]
        program.send_signal(sig)
        _wait_state(program.pid, "T" if sig is signal.SIGSTOP else "Z")
        return program.pid


def _reference(program: subprocess.Popen[bytes]) -> ProcessRef:
    found = seen(program.pid)
    assert found is not None
    return found.process


def _wait_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + 20
    while (found := seen(pid)) is None or found.state != state:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[_Lab]:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    paths = LabPaths.of("x")
    paths.make()
    with ExitStack() as ending_all:
        programs: dict[str, subprocess.Popen[bytes]] = {}
        for name in _NAMES:
            programs[name] = ending_all.enter_context(subprocess.Popen(["sleep", "600"]))
            ending_all.callback(programs[name].kill)
        lab = _Lab(paths, programs, ending_all.enter_context(socket.create_server(("127.0.0.1", 0))))
        lab.note()
        yield lab


def test_of_a_sound_lab_and_of_one_elsewhere_nothing_is_said(lab: _Lab) -> None:
    assert faults_of(lab.note()) == ()
    assert PlaceFaults(lab.coordinator, _PLACE).faults() == ()
    lab.signal("board", signal.SIGKILL)
    assert PlaceFaults("farm:20408", _PLACE).faults() == ()


def test_a_dead_program_is_named_with_its_signal_or_exit_code(lab: _Lab) -> None:
    pid = lab.signal("board", signal.SIGKILL)
    lab.note(board=Ended("2026-01-01T00:00:01+00:00", -signal.SIGKILL))
    text = f"the lab's board (process {pid}) was killed by SIGKILL; its log is /log/board"
    assert PlaceFaults(lab.coordinator, _PLACE).faults() == (text,)
    assert [ending(3), ending(None)] == ["ended with exit code 3", "died"]


def test_a_program_that_gave_up_is_told_with_the_last_line_of_its_log(lab: _Lab, tmp_path: Path) -> None:
    log = tmp_path / "sshd.log"
    log.write_text("Server listening\nPrivilege separation user sshd does not exist\n\n")
    pid = lab.signal("board", signal.SIGTERM)
    record = lab.note(board=Ended("2026-01-01T00:00:01+00:00", 255))
    services = tuple(dataclasses.replace(each, log=str(log)) for each in record.services)
    lab.paths.write(dataclasses.replace(record, services=services))
    said = "ended with exit code 255: Privilege separation user sshd does not exist"
    assert PlaceFaults(lab.coordinator, _PLACE).faults() == (
        f"the lab's board (process {pid}) {said}; its log is {log}",
    )


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "while the exporter starts"])
def test_a_coordinator_that_closed_its_port_is_named_before_it_ends(lab: _Lab, ready: bool) -> None:
    here = lab.coordinator
    lab.paths.write(dataclasses.replace(lab.note(), ready=ready))
    assert PlaceFaults(here, _PLACE).faults() == ()
    lab.port.close()
    pid = lab.programs["coordinator"].pid
    assert PlaceFaults(here, _PLACE).faults() == (
        f"the lab's coordinator (process {pid}) does not answer; its log is /log/coordinator",
    )


def test_a_coordinator_that_is_still_starting_is_not_called_silent(lab: _Lab) -> None:
    record, here = lab.note(), lab.coordinator
    before = tuple(each for each in record.services if each.part != "exporter")
    lab.paths.write(dataclasses.replace(record, services=before))
    lab.port.close()
    assert PlaceFaults(here, _PLACE).faults() == ()


def test_no_wait_outlasts_a_part_that_died_whatever_it_is_for(lab: _Lab) -> None:
    """A board in guest time even stands still with its meter."""
    lab.signal("meter", signal.SIGKILL)
    assert "the lab's meter" in PlaceFaults(lab.coordinator, _PLACE).faults()[0]


def _of_lab(lab: _Lab) -> tuple[str, ...]:
    """Without those of this process's own children, which the lab's programs are here."""
    record = lab.paths.read()
    assert record is not None
    return tuple(fault.text for fault in faults_of(record, _PLACE))


def test_a_program_that_stands_still_is_named_unless_it_soon_goes_on(lab: _Lab) -> None:
    pid = lab.signal("board", signal.SIGSTOP)
    text = f"the lab's board (process {pid}) was stopped (SIGSTOP) and does nothing"
    assert _of_lab(lab) == (text,)
    going_on = subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -CONT {pid}"])
    assert _of_lab(lab) == ()
    assert going_on.wait(20) == 0


def test_a_stopped_program_of_the_run_keeps_the_card_from_being_written_but_none_of_a_lab_that_the_run_brought_up(
    lab: _Lab,
) -> None:
    argv = ["sh", "-c", "sleep 600 & echo $!; wait"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as guardian, subprocess.Popen(["sleep", "600"]) as ssh:
        assert guardian.stdout is not None
        service = int(guardian.stdout.readline())
        try:
            lab.paths.write(dataclasses.replace(lab.note(), guardian=_reference(guardian)))
            os.kill(service, signal.SIGSTOP)
            _wait_state(service, "T")
            assert PlaceFaults(lab.coordinator, _PLACE).faults() == ()
            ssh.send_signal(signal.SIGSTOP)
            _wait_state(ssh.pid, "T")
            text = f"sleep of this run (process {ssh.pid}) was stopped (SIGSTOP) and does nothing"
            assert PlaceFaults(lab.coordinator, _PLACE).faults() == (text,)
        finally:
            os.kill(service, signal.SIGKILL)
            guardian.kill()
            ssh.kill()


def test_a_stopped_emulator_below_the_board_is_the_boards_qemu(lab: _Lab, tmp_path: Path) -> None:
    qemu = tmp_path / "qemu-system-arm"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", qemu)
    starts_it = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", starts_it, str(qemu), "600"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as board:
        assert board.stdout is not None
        pid = int(board.stdout.readline())
        try:
            lab.programs["board"].kill()
            lab.programs["board"].wait()
            lab.programs["board"] = board
            lab.note()
            assert _of_lab(lab) == ()
            os.kill(pid, signal.SIGSTOP)
            _wait_state(pid, "T")
            text = f"the board's QEMU (process {pid}) was stopped (SIGSTOP) and does nothing"
            assert _of_lab(lab) == (text,)
        finally:
            os.kill(pid, signal.SIGKILL)


def test_a_boards_faults_are_those_of_what_it_needs(lab: _Lab) -> None:
    record = lab.note()
    boards = (BoardRecord(1), BoardRecord(2))
    mine = {"board": (1,), "meter": (2,), "exporter": (1, 2)}
    services = tuple(dataclasses.replace(each, boards=mine.get(each.name, ())) for each in record.services)
    lab.paths.write(dataclasses.replace(record, boards=boards, services=services))
    pid = lab.signal("meter", signal.SIGKILL)
    assert PlaceFaults(lab.coordinator, "virtual").faults(Part.METER) == ()
    assert PlaceFaults(lab.coordinator, "virtual").faults() == ()
    [told] = PlaceFaults(lab.coordinator, "virtual-2").faults(Part.METER)
    assert told.startswith(f"the lab's meter (process {pid}) died")
    assert PlaceFaults(lab.coordinator, "elsewhere").faults() == (told,)
    lab.signal("exporter", signal.SIGKILL)
    assert [len(PlaceFaults(lab.coordinator, each).faults()) for each in ("virtual", "virtual-2")] == [1, 2]
    lab.signal("coordinator", signal.SIGKILL)
    assert any("the lab's coordinator" in each for each in PlaceFaults(lab.coordinator, "virtual-2").faults())
    assert len(coordinator_faults(lab.coordinator, "virtual")) == 1


def test_a_lab_that_has_ended_says_why_until_the_next_begins(lab: _Lab) -> None:
    record = lab.note()
    lab.paths.bury(record, "its supervisor was killed by SIGKILL")
    lab.paths.bury(record, "it was taken down")
    lab.signal("coordinator", signal.SIGKILL)
    assert PlaceFaults(lab.coordinator, _PLACE).faults() == (
        "the lab 'x' has ended: its supervisor was killed by SIGKILL",
    )
    lab.paths.record.unlink()
    assert PlaceFaults(lab.coordinator, _PLACE).faults() == (
        "the lab 'x' has ended: its supervisor was killed by SIGKILL",
    )
    lab.paths.make()
    assert PlaceFaults(lab.coordinator, _PLACE).faults() == ()


def test_a_silent_meters_error_tells_first_that_its_program_died(lab: _Lab) -> None:
    pid = lab.signal("meter", signal.SIGKILL)
    lab.note(meter=Ended("2026-01-01T00:00:01+00:00", -signal.SIGKILL))
    meter = ExplainedMeter(FakeMeter(), PlaceFaults(lab.coordinator, _PLACE))
    for use in (meter.info, meter.arm, meter.disarm):
        with pytest.raises(MeterError, match=rf"^the lab's meter \(process {pid}\) was killed by SIGKILL; .*silent"):
            use()


def test_causes_are_told_first_and_once() -> None:
    error = LabError("no answer", hint="look")
    error.blame(["QEMU died", "the exporter died"])
    error.blame(["the coordinator's end, which was noted later", "QEMU died"])
    assert str(error) == "QEMU died; the exporter died: no answer\n  hint: look"
    error.blame([])
    assert error.what == "QEMU died; the exporter died: no answer"


def test_beside_a_dead_program_of_the_lab_the_console_has_three_lines() -> None:
    error = BoardError("the console's connection was lost", console_tail=[f"line {number}" for number in range(20)])
    error.blame_lab(())
    assert error.what.count("console| ") == 20
    error.blame_lab(["the lab's coordinator ended"])
    lines = [f"  console| line {number}" for number in (17, 18, 19)]
    assert error.what.splitlines() == ["the lab's coordinator ended: the console's connection was lost", *lines]
    assert len(error.console_tail) == 20


def test_a_dead_coordinator_is_told_once_by_the_process_of_a_board() -> None:
    dead = "the lab's coordinator (process 7) ended with exit code 0"

    class Guard:
        def lacks(self) -> tuple[str, ...]:
            raise LabError(f"{dead}: it is not known whether the place 'virtual' is still ours")

    def health(*dead_parts: str) -> PoolPlaceHealth:
        held: Any = SimpleNamespace(guard=Guard(), faults=FakeHealth([dead_parts]).faults)
        return PoolPlaceHealth(held)

    error = BoardError("the console's connection was lost after 0 s")
    error.blame_lab([dead])
    error.blame_lab(health(dead).faults())
    assert error.what == f"{dead}: the console's connection was lost after 0 s"
    assert len(health().faults()) == 1
