"""The first cause is what is told: errors of the lab are translated wherever they arise, and never replaced."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import numpy as np
import pexpect
import pytest
from labgrid import Target
from labgrid.exceptions import InvalidConfigError
from labgrid.remote.common import ResourceEntry
from labgrid.resource import Resource
from labgrid.util.managedfile import ManagedFile
from labgrid.util.ssh import SSHConnection, sshmanager
from results_factory import make_run
from serial import SerialException
from traces import trace_of

from fsjoule.bench.damage import _flakey_device
from fsjoule.bench.measurer import lost_energy, recorded
from fsjoule.bench.scratch import Scratch, checked
from fsjoule.bench.tries import fault_of
from fsjoule.errors import BoardError, LabError, MeterError, Part, PlaceLostError, also
from fsjoule.lab import (
    LabgridShell,
    is_lab_fault,
    lab_errors,
    raised_by_us,
    remove_left_connections,
)
from fsjoule.lab.console import ConsoleRecorder, SteadySerial
from fsjoule.lab.meterdriver import NoMeter
from fsjoule.lab.target import close_ssh
from fsjoule.model import FlakeyModel, Trace
from fsjoule.ports import CommandResult
from fsjoule.report.summary import summarise
from fsjoule.testing import FakeMeter, FakeShell

# ------------------------------------------------------------------------------------------- what is the lab's fault


def exporter_gone() -> None:
    _ = cast("Any", ResourceEntry)({}).args


def file_gone() -> None:
    cast("Any", ManagedFile)("/nowhere/card.img", cast("Any", Resource)(cast("Any", Target)("main"), None))


def program_fails() -> None:
    subprocess.run(["sh", "-c", "echo no route >&2; exit 255"], check=True, capture_output=True)


def program_takes_too_long() -> None:
    subprocess.run(["sleep", "5"], check=True, timeout=0.01)


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


class Refused(grpc.RpcError):
    def details(self) -> str:
        return "connection refused"


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (exporter_gone, "KeyError: 'params'"),
        (file_gone, "not found"),
        (program_fails, "exit code 255"),
        (program_takes_too_long, "timed out"),
        (raising(Refused()), "connection refused"),
        (raising(socket.gaierror(-2, "Name or service not known")), "Name or service not known"),
        (raising(TimeoutError("no answer")), "no answer"),
        (raising(SerialException("connection failed (reader thread died)")), "reader thread died"),
        (raising(pexpect.EOF("End of File\n<thirty lines>")), "End of File"),
    ],
)
def test_what_labgrid_stumbles_over_is_a_fault_of_the_lab(fail: Callable[[], None], said: str) -> None:
    with pytest.raises(LabError) as caught, lab_errors("doing it"):
        fail()
    assert caught.value.transient
    assert caught.value.what.startswith("doing it failed: ")
    assert said in caught.value.what
    assert "thirty" not in caught.value.what
    assert caught.value.__cause__ is not None
    assert is_lab_fault(cast("Exception", caught.value.__cause__))


def test_the_part_that_failed_is_named_unless_a_file_of_the_users_may_be_why() -> None:
    for error, part in (
        (SerialException("reader thread died"), Part.CONSOLE),
        (LabError("it took longer than 30 s"), Part.CONSOLE),
        (LabError("the outlet", part=Part.POWER), Part.POWER),
        (BoardError("the kernel panicked"), None),
        (PlaceLostError("virtual", "ada has it"), None),
        (MeterError("silent"), Part.METER),
        (cast("Any", InvalidConfigError)("no such driver"), None),
    ):
        with pytest.raises(LabError) as caught, lab_errors("doing it", Part.CONSOLE):
            raise error
        assert caught.value.part is part, error


def test_a_bug_is_none() -> None:
    with pytest.raises(KeyError), lab_errors("doing it"):
        raise KeyError("params")
    with pytest.raises(AttributeError) as caught:
        checked(cast("Any", None), "true")
    assert not is_lab_fault(caught.value)
    assert raised_by_us(caught.value)


# -------------------------------------------------------------------------------------------------- clean-up that fails


def panicked() -> BoardError:
    return BoardError("the kernel panicked while 'fio' ran")


def test_a_board_that_died_is_not_asked_to_rest() -> None:
    rested: list[float] = []
    with pytest.raises(BoardError, match="panicked"), recorded(FakeMeter(), rested.append):
        raise panicked()
    assert rested == []


class Silent(FakeMeter):
    def arm(self) -> None:
        raise MeterError("the meter is silent")


class Unplugged(FakeMeter):
    def disarm(self) -> Trace:
        raise MeterError("the meter was unplugged")


def test_a_board_without_a_meter_says_so_in_each_measurement_and_not_on_each_line(said: list[str]) -> None:
    for meter, lines in ((NoMeter(), 0), (Silent(), 1)):
        with recorded(meter, lambda _: None) as recording:
            pass
        assert recording.trace is None
        assert recording.note.startswith("no energy: ")
        assert len(said) == lines
    assert lost_energy(["no energy: the environment file has no meter"]) == "the environment file has no meter"


def test_what_fails_besides_is_a_note() -> None:
    with pytest.raises(BoardError) as caught, recorded(Unplugged(trace_of(np.full(10, 2500))), lambda _: None):
        raise panicked()
    assert str(caught.value).splitlines() == [
        "the kernel panicked while 'fio' ran",
        "  ending the meter's recording failed too: the meter was unplugged",
    ]
    error = LabError("first", hint="look")
    with also(error, "unmounting"):
        raise LabError("second\nand more")
    assert str(error) == "first\n  unmounting failed too: second\n  hint: look"
    with pytest.raises(ZeroDivisionError), also(error, "unmounting"):
        _ = 1 / 0


def test_a_filesystem_on_a_dead_board_is_not_what_is_told() -> None:
    dead = False

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if dead:
            raise BoardError("'cat /proc/mounts' did not end within 30 s")
        return CommandResult(argv, 0, "2048\n")

    scratch = Scratch(FakeShell(answered), "/dev/mmcblk1p3", purge=False)

    def die() -> None:
        nonlocal dead
        dead = True
        raise panicked()

    with pytest.raises(BoardError, match="panicked") as caught, _flakey_device(scratch, FlakeyModel.AFTER_10S):
        die()
    assert "failed too: 'cat /proc/mounts' did not end" in str(caught.value)


def test_programs_that_fail_on_the_board_are_worth_a_second_try() -> None:
    with pytest.raises(LabError) as caught:
        checked(FakeShell(lambda argv: CommandResult(argv, 1, "no")), "sync")
    assert caught.value.transient


def test_lost_energy_is_known_by_its_note() -> None:
    assert lost_energy(["counters since power-on", "no energy: the meter is silent"]) == "the meter is silent"
    assert lost_energy(["energy was projected"]) == ""


def test_the_table_says_what_was_tried_twice() -> None:
    made = make_run()
    entry = made.run.plan.entries[0]
    fault = fault_of(BoardError("the board hung"), entry, started_utc="", ended_utc="", steps=())
    run = replace(made.run, faults=(fault,))
    remarks = {remark.text: remark.numbers for remark in summarise(run, made.measurements).remarks}
    assert remarks["tried twice: the board hung"] == (entry.number,)
    others = [each for each in made.measurements if each.number != entry.number]
    assert summarise(run, others).remarks[0].text == "failed: the board hung"
    ended = replace(run, abort_reason="stopped: the board hung")
    assert not any("hung" in each.text for each in summarise(ended, others).remarks), "the cause stands there once"


# --------------------------------------------------------------------------------------------------------- the console


class DeadConsole:
    """labgrid's console whose other side has gone: the first reading ends at once, all later ones fail."""

    def __init__(self) -> None:
        self.asked = 0

    def sendline(self, line: str) -> None:
        del line

    def expect(self, patterns: list[object], timeout: float) -> tuple[int, bytes, None, bytes]:
        del timeout
        self.asked += 1
        if self.asked > 1:
            raise SerialException("connection failed (reader thread died)")
        return len(patterns) - 1, b"", None, b""


@pytest.mark.parametrize("asked", [0, 1])
def test_a_console_that_is_gone_is_named_at_once(asked: int) -> None:
    lost: list[bool] = []
    console = DeadConsole()
    console.asked = asked
    driver: Any = type("Driver", (), {"console": console, "login_prompt": "login:", "prompt": "#"})()
    shell = LabgridShell(driver, ConsoleRecorder(console), lambda: lost.append(True))
    begin = time.monotonic()
    with pytest.raises(BoardError, match="the console's connection was lost after 0 s") as caught:
        shell.run(["fio"], timeout_s=300)
    assert time.monotonic() - begin < 5
    assert "did not end within" not in caught.value.what
    assert lost == [True]


def test_a_connection_that_the_other_side_closed_leaves_no_socket() -> None:
    ours, theirs = socket.socketpair()
    port: Any = SteadySerial()
    port._socket, port._thread = ours, None
    theirs.close()
    ours.shutdown(socket.SHUT_RDWR)
    port.close()
    assert ours.fileno() == -1
    # pyserial's own leaves it to the collector where shutting down fails.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del ours, port
        gc.collect()


def test_a_slow_ssh_hides_no_error_and_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 30\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    connection = cast("Any", SSHConnection)("busy")
    connection._keepalive = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    connection._master = master = subprocess.Popen(["sleep", "600"])
    connection._socket, connection._connected = str(tmp_path / "socket"), True
    sshmanager.add_connection(connection)
    with pytest.raises(BoardError, match="first"), ExitStack() as closing:  # noqa: PT012
        closing.callback(close_ssh)
        raise BoardError("first")
    assert master.poll() == -signal.SIGKILL
    assert "busy" not in sshmanager._connections


def test_connections_of_a_killed_run_leave_no_folder_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("lg-con-left", "lg-ssh-left", "lg-con-used", "lg-con-closed", "lg-con-new", "lg-share-of-another"):
        (tmp_path / name).mkdir()
    with socket.socket(socket.AF_UNIX) as used:
        used.bind(str(tmp_path / "lg-con-used" / "control-farm.x7"))
        for folder in tmp_path.iterdir():
            age_s = {"lg-con-new": 0, "lg-con-closed": 3600}.get(folder.name, 2 * 24 * 3600)
            os.utime(folder, (time.time() - age_s, time.time() - age_s))
        remove_left_connections()
    assert {each.name for each in tmp_path.iterdir()} == {
        "lg-con-used",
        "lg-con-closed",
        "lg-con-new",
        "lg-share-of-another",
    }
