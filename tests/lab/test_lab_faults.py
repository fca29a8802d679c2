"""Programs of the virtual lab killed, ended and stopped: each is named, nothing stays behind, the next lab comes up."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from lab_leftovers import assert_nothing_left, processes
from meter_process import running

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.host.messages import lines_to
from fsjoule.host.process_ref import ProcessRef, wait_gone
from fsjoule.virtual.lab import lab, services
from fsjoule.virtual.lab.files import LabPaths, LabRecord
from fsjoule.virtual.lab.health import PlaceFaults
from fsjoule.virtual.lab.instruments import _served_at
from fsjoule.virtual.lab.usbsdmux import ask

_LIMIT_S = 60.0
_SERVICES = ("exporter", "meter", "board", "sshd", "coordinator")
_KILL, _TERM, _STOP = signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP


def _record(name: str = "virtual") -> LabRecord:
    record = LabPaths.of(name).read()
    assert record is not None
    return record


def _service(name: str) -> ProcessRef:
    return next(each.process for each in _record().services if each.name == name)


def _head(name: str) -> ProcessRef:
    record = _record()
    head = record.guardian if name == "guardian" else record.supervisor
    assert head is not None
    return head


def _up(owner_pid: int | None = None) -> lab.LabHandle:
    return lab.up("virtual", owner_pid=owner_pid)


def _client(handle: lab.LabHandle, *arguments: str) -> None:
    client = Path(sys.executable).parent / "labgrid-client"
    process.run([client, "-p", "virtual", *arguments], timeout_s=_LIMIT_S, env=handle.environment)


def _switch_on() -> None:
    outlet = _record().boards[0].status_url.replace("/status", "/outlet/0")
    urllib.request.urlopen(urllib.request.Request(outlet, b"1", method="PUT"), timeout=_LIMIT_S).close()


@contextmanager
def _program(text: str) -> Generator[subprocess.Popen[str]]:
    """A Python program that says `ready` and goes on until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        assert program.stdout is not None
        said: list[str] = []
        for line in program.stdout:
            said.append(line)
            if line == "ready\n":
                break
        else:
            pytest.fail("".join(said))
        try:
            yield program
        finally:
            program.kill()


_OWNER = """
import os, sys
from fsjoule.host.messages import lines_to
from fsjoule.virtual.lab import lab
with lines_to(lambda text: print(text, flush=True)):
    lab.up("virtual", owner_pid=os.getpid())
print("ready", flush=True)
sys.stdin.readline()
"""

_RUN = """
import sys
from fsjoule.lab import acquired_place
with acquired_place("virtual"):
    print("ready", flush=True)
    sys.stdin.readline()
"""


# ---------------------------------------------------------------------------------------------------- services


@pytest.mark.parametrize(
    "sig",
    [
        pytest.param(_KILL, id="killed"),
        pytest.param(_TERM, id="ended", marks=pytest.mark.slow),
        pytest.param(_STOP, id="stopped"),
    ],
)
def test_each_service_is_named_and_nothing_is_left(state: Path, sig: signal.Signals) -> None:
    handle = _up()
    coordinator = handle.environment["LG_COORDINATOR"]
    _client(handle, "acquire")
    _switch_on()
    assert PlaceFaults(coordinator, "virtual").faults() == (
        "the board has nothing to boot: the card has no partition table",
    )
    ask(f"{_record().devices}/mux", "host")
    for name in _SERVICES:
        pid = _service(name).pid
        os.kill(pid, sig)
        begin = time.monotonic()
        text = f"the lab's {name} (process {pid}) "
        # Until its supervisor has noted the end, a part only does not answer.
        while not (
            told := [
                fault
                for fault in PlaceFaults(coordinator, "virtual").faults()
                if fault.startswith(text) and "does not answer" not in fault
            ]
        ):
            assert time.monotonic() < begin + _LIMIT_S
        assert ("SIGSTOP" in told[0]) == (sig is _STOP)
        assert ("SIGKILL" in told[0]) == (sig is _KILL)
    status = lab.status("virtual")
    assert status.state == ("up" if sig is _STOP else "degraded")
    assert all(f"the lab's {name} (process" in status.text() for name in _SERVICES)
    assert (status.holder_known, status.holder) == (False, None), "it is held, and nobody can say so"
    assert "place 'virtual' may be held: its coordinator does not answer" in status.text()
    devices = Path(_record().devices)
    begin = time.monotonic()
    assert lab.down("virtual")
    assert time.monotonic() - begin < _LIMIT_S
    assert_nothing_left(state, devices)
    assert lab.status("virtual").faults[0].endswith("it was taken down")


@pytest.mark.parametrize(
    "heads",
    [
        pytest.param(("supervisor",), marks=pytest.mark.slow),
        pytest.param(("guardian",), marks=pytest.mark.slow),
        ("supervisor", "guardian"),
    ],
)
def test_stopped_heads_hinder_neither_down_nor_the_next_lab(state: Path, heads: tuple[str, ...]) -> None:
    _up()
    devices = Path(_record().devices)
    for name in heads:
        os.kill(_head(name).pid, _STOP)
    begin = time.monotonic()
    assert lab.down("virtual")
    assert time.monotonic() - begin < _LIMIT_S
    assert_nothing_left(state, devices)


@pytest.mark.parametrize("head", [pytest.param("supervisor", marks=pytest.mark.slow), "guardian"])
def test_a_stopped_head_does_not_outlive_the_owner(state: Path, head: str) -> None:
    with _program(_OWNER):
        devices = Path(_record().devices)
        os.kill(_head(head).pid, _STOP)
    assert_nothing_left(state, devices)
    assert "its owner, process" in lab.status("virtual").text()


@pytest.mark.parametrize(
    ("name", "sig", "told"),
    [
        ("supervisor", _KILL, "its supervisor was killed by SIGKILL"),
        pytest.param("guardian", _KILL, "its guardian, process ", marks=pytest.mark.slow),
        ("guardian", _TERM, "it was taken down"),
    ],
)
def test_a_head_that_ends_while_the_lab_starts_is_named(state: Path, name: str, sig: signal.Signals, told: str) -> None:
    devices: list[Path] = []

    def signalled(line: str) -> None:
        if line.startswith("starting coordinator"):
            devices.append(Path(_record().devices))
            os.kill(_head(name).pid, sig)

    with pytest.raises(LabError, match=f"^the lab 'virtual' ended while it started: {told}"), lines_to(signalled):
        lab.up("virtual", owner_pid=os.getpid())
    assert lab.status("virtual").state == "down"
    assert_nothing_left(state, devices[0])


@pytest.mark.parametrize(
    ("sig", "told"), [(_KILL, "was killed by SIGKILL"), (_STOP, r"was stopped \(SIGSTOP\)")], ids=["killed", "stopped"]
)
def test_what_a_service_failed_for_is_named_first(state: Path, sig: signal.Signals, told: str) -> None:
    def signalled(line: str) -> None:
        if line == "starting exporter":
            [coordinator] = [service for service in _record().services if service.name == "coordinator"]
            os.kill(coordinator.process.pid, sig)

    expected = rf"^the lab's coordinator \(process \d+\) {told}.*, so that the lab's exporter (ended|is not ready)"
    with pytest.raises(LabError, match=expected), lines_to(signalled):
        lab.up("virtual", owner_pid=os.getpid())
    assert not processes(state)


# ----------------------------------------------------------------------------------------------------- terminals


def test_a_dead_meters_port_never_serves_another_meter(state: Path, tmp_path: Path) -> None:
    handle = _up()
    _client(handle, "acquire")
    devices = Path(_record().devices)
    port = _served_at(devices / "meter")
    assert port is not None
    terminals = {(devices / name).readlink() for name in ("meter", "marks")}
    with ExitStack() as stack:
        line = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=_LIMIT_S))
        assert line.recv(4096)
        meter = _service("meter")
        os.kill(meter.pid, _KILL)
        taken: set[Path] = set()
        for number in range(4):
            folder = tmp_path / str(number)
            folder.mkdir()
            other = stack.enter_context(running(services.simulator(), folder, "--load", "5.0,0.1"))
            taken |= {other.stream.readlink(), other.marks.readlink()}
            for each in (pair := pty.openpty()):
                stack.callback(os.close, each)
            taken.add(Path(os.ttyname(pair[1])))
        assert not taken & terminals
        try:
            while line.recv(65536):  # what the meter had sent, and the end
                pass
        except OSError:
            pass
        assert not (devices / "meter").is_symlink()
        assert not (devices / "marks").is_symlink()
        again = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=3.0))
        try:
            heard = b"".join(iter(lambda: again.recv(65536), b""))
        except OSError:
            heard = b""
        assert len(heard) < 100, "only ser2net's own greeting or complaint"
        board = _service("board")
        console = (devices / "console").readlink()
        os.kill(board.pid, _KILL)
        assert not wait_gone([board], _LIMIT_S)
        for _ in range(20):
            for each in (pair := pty.openpty()):
                stack.callback(os.close, each)
            assert Path(os.ttyname(pair[1])) != console
    lab.down("virtual")
    assert_nothing_left(state, devices)


# ----------------------------------------------------------------------------------------------------- ownership


def test_a_lab_that_has_lost_a_part_is_its_owners(state: Path) -> None:
    with _program(_OWNER) as owner:
        before, devices = _record(), Path(_record().devices)
        exporter = _service("exporter")
        os.kill(exporter.pid, _KILL)
        assert not wait_gone([exporter], _LIMIT_S)
        with pytest.raises(LabError, match=f"brought up again: it belongs to process {owner.pid}") as caught:
            _up(os.getpid())
        assert f"exporter (process {exporter.pid}) was killed by SIGKILL" in caught.value.what
        assert "lab down --force" in (caught.value.hint or "")
        with pytest.raises(LabError, match=f"taken down: it belongs to process {owner.pid}"):
            lab.down("virtual")
        assert not lab.down("virtual", identity="another")
        assert _record().identity == before.identity
        assert lab.status("virtual").owner_pid == owner.pid
    assert_nothing_left(state, devices)
    # The owner is gone: the next lab of the name comes up, and the one before cannot end it.
    handle = _up(os.getpid())
    assert not lab.down("virtual", identity=before.identity)
    assert lab.status("virtual").state == "up"
    assert lab.down("virtual", identity=handle.identity)
    assert not processes(state)


def test_a_lab_that_a_run_uses_is_left_to_it(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = _up()
    for name, value in handle.environment.items():
        monkeypatch.setenv(name, value)
    with _program(_RUN) as run:
        with pytest.raises(LabError, match=f"is used by a run, process {run.pid}"):
            lab.down("virtual")
        os.kill(_service("meter").pid, _KILL)
        assert not wait_gone([_service("meter")], _LIMIT_S)
        with pytest.raises(LabError, match=f"is used by a run, process {run.pid}.*meter"):
            _up()
        devices = Path(_record().devices)
        assert lab.down("virtual", force=True)
    assert_nothing_left(state, devices)
