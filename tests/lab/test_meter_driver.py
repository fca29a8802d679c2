"""The meter's labgrid driver on the real simulator: on a tty of its own and through a real ser2net."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from labgrid import target_factory
from meter_wire import INFO, frame

from fsjoule import process
from fsjoule.errors import MeterError
from fsjoule.lab import MeterDriver, meter
from fsjoule.virtual import meter_build
from fsjoule.virtual.lab_services import free_ports, listens

_LIMIT_S = 30.0
_SPEED = 1_000_000


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@dataclass
class _Bench:
    """A meter with 5 V and 0.25 A, and ways to disturb it."""

    devices: Path
    closing: ExitStack
    port: int = field(default_factory=lambda: free_ports(1)[0])

    @property
    def stream(self) -> Path:
        return self.devices / "meter"

    @property
    def marks(self) -> Path:
        return self.devices / "marks"

    def start_meter(self) -> subprocess.Popen[bytes]:
        simulator = process.start(
            [
                meter_build.simulator(print),
                *("--load", "5.0,0.25"),
                *("--stream-link", self.stream),
                *("--marks-link", self.marks),
            ]
        )
        self.closing.callback(process.stop, simulator)
        _wait(lambda: self.stream.exists() and self.marks.exists(), "no meter")
        return simulator

    def start_ser2net(self) -> subprocess.Popen[bytes]:
        """As labgrid's exporter starts it."""
        accepter = f"telnet(rfc2217,mode=server),tcp,127.0.0.1,{self.port}"
        connector = f"serialdev(nouucplock=true),{self.stream},{_SPEED}n81,local"
        lines = [f"connection: &con01#  accepter: {accepter}", f"  connector: {connector}"]
        lines += ["  options:", "    max-connections: 10"]
        ser2net = process.start(["ser2net", "-d", "-n", *(word for line in lines for word in ("-Y", line))])
        self.closing.callback(process.stop, ser2net)
        _wait(lambda: listens(self.port), "no ser2net")
        return ser2net

    def driver(self, *, network: bool) -> MeterDriver:
        """The driver, active, as an environment file binds it."""
        if network:
            port = {"cls": "NetworkSerialPort", "host": "127.0.0.1", "port": self.port}
        else:
            port = {"cls": "RawSerialPort", "port": str(self.stream)}
        config = {
            "resources": [{**port, "name": "meter", "speed": _SPEED}],
            "drivers": {"MeterDriver": {"bindings": {"port": "meter"}}},
        }
        target = target_factory.make_target("main", config)
        self.closing.callback(target.cleanup)
        return meter(target)

    def mark(self, text: str) -> None:
        with self.marks.open("wb", buffering=0) as marks:
            marks.write(text.encode() + b"\n")


@pytest.fixture
def bench() -> Generator[_Bench]:
    devices = Path(tempfile.mkdtemp(prefix="fsjoule-test-", dir="/dev/shm"))
    with ExitStack() as closing:
        closing.callback(shutil.rmtree, devices)
        yield _Bench(devices, closing)


@pytest.mark.parametrize("network", [False, True], ids=["tty", "ser2net"])
def test_records_samples_and_marks_up_to_the_call(bench: _Bench, network: bool) -> None:
    bench.start_meter()
    if network:
        bench.start_ser2net()
    driver = bench.driver(network=network)
    info = driver.info()
    assert info.simulated
    assert info.rate_hz == 1000
    driver.arm()
    bench.mark("S1")
    time.sleep(0.5)
    bench.mark("E1")
    trace = driver.disarm()
    assert [mark.text for mark in trace.marks] == ["S1", "E1"]
    assert trace.times_us[0] <= trace.marks[0].time_us
    assert trace.lost == trace.missed == 0
    assert np.mean(trace.power_w) == pytest.approx(1.25, rel=0.01)
    assert trace.counts.received == trace.ticks[-1] - trace.ticks[0] + 1


def test_recording_again_begins_afresh(bench: _Bench) -> None:
    bench.start_meter()
    driver = bench.driver(network=False)
    driver.arm()
    first = driver.disarm()
    driver.arm()
    second = driver.disarm()
    assert second.ticks[0] > first.ticks[-1]


def test_a_meter_that_says_nothing_is_an_error_within_the_limit(bench: _Bench) -> None:
    master, slave = os.openpty()
    bench.closing.callback(os.close, slave)
    bench.closing.callback(os.close, master)
    bench.stream.symlink_to(os.ttyname(slave))
    driver = bench.driver(network=False)
    for call in (driver.info, driver.arm):
        begin = time.monotonic()
        with pytest.raises(MeterError, match="the meter did not say what it is") as caught:
            call()
        assert time.monotonic() - begin < 10
        assert caught.value.transient
        assert caught.value.hint


def test_an_unplugged_meter_is_said_at_once_and_works_when_it_is_back(
    bench: _Bench, caplog: pytest.LogCaptureFixture
) -> None:
    simulator = bench.start_meter()
    driver = bench.driver(network=False)
    driver.arm()
    simulator.kill()
    with caplog.at_level(logging.WARNING, logger="fsjoule"):
        _wait(lambda: "the meter is silent" in caplog.text, "nobody says that the meter is gone")
    with pytest.raises(MeterError, match="fell silent while it was recorded"):
        driver.disarm()
    bench.start_meter()
    _wait(lambda: _arms(driver), "the meter is back, and the driver does not see it")
    # The first moments of a stream that has just been opened may hold a gap; it is counted, and the rest is whole.
    counts = driver.disarm().counts
    assert counts.received > 0
    assert counts.expected == counts.received + counts.lost


def _arms(driver: MeterDriver) -> bool:
    try:
        driver.arm()
    except MeterError:
        return False
    return True


def test_a_broken_connection_is_made_again_and_the_gap_is_counted(bench: _Bench) -> None:
    bench.start_meter()
    ser2net = bench.start_ser2net()
    driver = bench.driver(network=True)
    driver.arm()
    time.sleep(0.3)
    process.stop(ser2net)
    time.sleep(0.3)
    bench.start_ser2net()
    before = driver.counters.frames
    _wait(lambda: driver.counters.frames > before + 20, "the driver does not connect again")
    trace = driver.disarm()
    assert trace.lost > 0
    assert trace.counts.expected == trace.ticks[-1] - trace.ticks[0] + 1
    assert driver.counters.lost > 0


def test_another_protocol_is_refused_with_what_to_do(bench: _Bench) -> None:
    master, slave = os.openpty()
    bench.closing.callback(os.close, slave)
    bench.closing.callback(os.close, master)
    bench.stream.symlink_to(os.ttyname(slave))
    driver = bench.driver(network=False)
    complaints: list[str] = []

    def refused() -> bool:
        # What is sent before the port is open is lost: send it again.
        os.write(master, b"\0" + frame(INFO, 0, b"", protocol=2))
        with pytest.raises(MeterError) as caught:
            driver.info()
        complaints.append(str(caught.value))
        return "speaks protocol 2" in complaints[-1]

    _wait(refused, f"not refused: {complaints}")


def test_disarming_what_was_not_armed_is_an_error(bench: _Bench) -> None:
    bench.start_meter()
    driver = bench.driver(network=False)
    driver.info()
    with pytest.raises(MeterError, match="was not armed"):
        driver.disarm()
