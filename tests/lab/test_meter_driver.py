"""The meter's labgrid driver on the real simulator: on a tty of its own and through a real ser2net."""

from __future__ import annotations

import itertools
import logging
import os
import re
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pytest
from labgrid import target_factory
from labgrid.binding import BindingState
from meter_desk import SPEED, Desk, desk
from meter_wire import INFO, frame, info, samples
from waiting import wait_for

from fsjoule.errors import MeterError
from fsjoule.host import process
from fsjoule.lab import MeterDriver, meter
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.links.streams import NetworkStream, PortHeldError
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand
from fsjoule.model import MarkSource

_NOTHING: Final[Any] = {"energy_raw": 0, "missed_total": 0, "flags": 0}


@dataclass
class _Bench(Desk):
    """A desk with drivers."""

    def driver(self, *, network: bool) -> MeterDriver:
        """The driver, active, as an environment file binds it."""
        if network:
            port = {"cls": "NetworkSerialPort", "host": "127.0.0.1", "port": self.port}
        else:
            port = {"cls": "RawSerialPort", "port": str(self.stream)}
        config = {
            "resources": [{**port, "name": "meter", "speed": SPEED}],
            "drivers": {"MeterDriver": {"bindings": {"port": "meter"}}},
        }
        target = target_factory.make_target("main", config)
        self.closing.callback(target.cleanup)
        return meter(target)


@pytest.fixture
def bench() -> Generator[_Bench]:
    with desk() as empty:
        yield _Bench(empty.devices, empty.closing)


@pytest.mark.parametrize("network", [False, True], ids=["tty", "ser2net"])
def test_records_samples_and_marks_up_to_the_call(bench: _Bench, network: bool) -> None:
    bench.start_meter()
    if network:
        bench.start_ser2net()
    driver = bench.driver(network=network)
    info = driver.info()
    assert info.simulated
    assert info.rate_hz == 625
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
    bench.start_nothing()
    driver = bench.driver(network=False)
    for call in (driver.info, driver.arm):
        begin = time.monotonic()
        with pytest.raises(MeterError, match="the meter sent no info") as caught:
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
    process.stop(simulator)  # its terminal goes, as that of a port that is unplugged
    with caplog.at_level(logging.WARNING, logger="fsjoule"):
        wait_for(lambda: "the meter is silent" in caplog.text, "nobody says that the meter is gone")
    with pytest.raises(MeterError, match="fell silent while it was recorded"):
        driver.disarm()
    bench.start_meter()
    wait_for(lambda: _arms(driver), "the meter is back, and the driver does not see it")
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
    wait_for(lambda: driver.counters.frames > before + 20, "the driver does not connect again")
    trace = driver.disarm()
    assert trace.lost > 0
    assert trace.counts.expected == trace.ticks[-1] - trace.ticks[0] + 1
    assert driver.counters.lost > 0


def test_a_meter_behind_a_connection_that_ser2net_left_open_is_found_again(bench: _Bench) -> None:
    """ser2net keeps the connection of a terminal that is lost while bytes for it wait: two times out of three here."""
    bench.start_ser2net(telnet=False)
    receiver = Receiver(lambda: NetworkStream("127.0.0.1", bench.port, telnet=False))
    bench.closing.callback(receiver.close)
    before = None
    for _ in range(5):
        meter = bench.start_meter()
        wait_for(lambda: _stream(receiver) not in (None, before), "the receiver waits for the terminal that is gone")  # noqa: B023
        before = _stream(receiver)
        receiver.send(b"a command")
        bench.stream.unlink()
        process.stop(meter)


def _stream(receiver: Receiver) -> int | None:
    try:
        return receiver.wait_info().status.stream_id
    except MeterError:
        return None


def test_another_protocol_is_refused_with_what_to_do(bench: _Bench) -> None:
    master = bench.start_nothing()
    driver = bench.driver(network=False)
    complaints: list[str] = []

    def refused() -> bool:
        # What is sent before the port is open is lost: send it again.
        os.write(master, b"\0" + frame(INFO, 0, b"", protocol=4))
        with pytest.raises(MeterError) as caught:
            driver.info()
        complaints.append(str(caught.value))
        return "speaks protocol 4" in complaints[-1]

    wait_for(refused, f"not refused: {complaints}")


def test_a_trace_names_the_meter_that_made_it(bench: _Bench) -> None:
    """Not the one that was there before: another one may be behind the same terminal without anybody noticing."""
    master = bench.start_nothing()
    driver = bench.driver(network=False)

    def first() -> bool:
        os.write(master, b"\0" + info(0, serial_number="A", stream_id=1))
        time.sleep(0.1)
        return driver.counters.frames > 0

    wait_for(first, "the first meter is not heard")
    ended = threading.Event()

    def another() -> None:
        begin_us = time.monotonic_ns() // 1000
        values = [(0, 0)] * 20  # whose sums stay 0
        for n in itertools.count():
            if n == 50:
                os.write(master, info(150, serial_number="B", shunt_uohm=50_000, stream_id=2))
            seq, time_us = 100 + n + (n >= 50), begin_us + 20_000 * n
            frame = samples(seq, first_tick=20 * n, first_time_us=time_us, values=values, stream_id=2, **_NOTHING)
            os.write(master, frame)
            if ended.wait(0.02):
                return

    thread = threading.Thread(target=another)
    thread.start()
    try:
        driver.arm()
        time.sleep(0.2)
        trace = driver.disarm()
    finally:
        ended.set()
        thread.join()
    assert (trace.info.serial_number, trace.info.shunt_uohm) == ("B", 50_000)
    assert trace.counts.received >= 1000


def test_disarming_what_was_not_armed_is_an_error(bench: _Bench) -> None:
    bench.start_meter()
    driver = bench.driver(network=False)
    driver.info()
    with pytest.raises(MeterError, match="was not armed"):
        driver.disarm()


# ------------------------------------------------------------------------------------------------------ its commands


@pytest.mark.parametrize("network", [False, True], ids=["tty", "ser2net"])
def test_commands_are_carried_out(bench: _Bench, network: bool) -> None:
    bench.start_meter()
    if network:
        bench.start_ser2net()
    driver = bench.driver(network=network)
    assert driver.set_rate(500).rate_hz == 500
    assert driver.set_range(160).shunt_range_mv == 160
    # As u32 it has the byte 0xFF, which telnet takes for its own unless it is doubled.
    assert driver.client().set_shunt(0xFFFF).info.shunt_uohm == 0xFFFF
    driver.arm()
    driver.mark("of the host")
    trace = driver.disarm()
    assert [(mark.text, mark.source) for mark in trace.marks] == [("of the host", MarkSource.HOST)]
    assert trace.info == driver.info()
    assert np.diff(trace.times_us).tolist() == [2000] * (len(trace.ticks) - 1)


def test_a_refused_command_says_why_and_changes_nothing(bench: _Bench) -> None:
    bench.start_meter()
    driver = bench.driver(network=False)
    before = driver.info()
    with pytest.raises(MeterError, match="refuses the command 'zero': a value is out of range, or"):
        driver.client().command(MeterCommand.ZERO, commands.zero(1))
    with pytest.raises(MeterError, match="the command's payload has the wrong length") as caught:
        driver.client().command(MeterCommand.RATE, b"\1")
    assert not caught.value.transient
    assert driver.info() == before


def test_commands_to_a_meter_that_is_gone_are_errors_within_the_limit(bench: _Bench) -> None:
    simulator = bench.start_meter()
    driver = bench.driver(network=False)
    client = driver.client()
    client.info()
    process.stop(simulator)
    begin = time.monotonic()
    with pytest.raises(MeterError):
        client.mark("lost")
    assert time.monotonic() - begin < 10


def test_a_stopped_meter_says_so(bench: _Bench) -> None:
    bench.start_meter()
    driver = bench.driver(network=False)
    assert not driver.client().stop().status.sampling
    with pytest.raises(MeterError, match="takes no samples"):
        driver.arm()
    assert driver.client().start().status.sampling
    driver.arm()
    assert driver.disarm().counts.received > 0


# ------------------------------------------------------------------------------------------------- a second reader


def test_a_terminal_that_somebody_reads_is_refused_by_name(bench: _Bench) -> None:
    bench.start_meter()
    cat = bench.thief()
    driver = bench.driver(network=False)
    with pytest.raises(PortHeldError, match=rf"meter is in use by cat \(process {cat.pid}\)") as caught:
        driver.info()
    assert f"kill {cat.pid}" in (caught.value.hint or "")
    process.stop(cat)
    wait_for(lambda: _arms(driver), "nobody reads it any more, and the driver still refuses")
    assert driver.disarm().lost == 0


def test_a_terminal_that_another_driver_has_is_refused(bench: _Bench) -> None:
    bench.start_meter()
    first = bench.driver(network=False)
    first.info()
    with pytest.raises(PortHeldError, match=rf"\(process {os.getpid()}\)"):
        bench.driver(network=False).info()
    first.arm()
    assert first.disarm().lost == 0


def _complaint(driver: MeterDriver) -> str:
    """What a driver in use says about the second reader that it has."""
    complaints: list[str] = []

    def complains() -> bool:
        try:
            driver.arm()
            complaints.extend(driver.disarm().faults)
        except MeterError as error:
            complaints.append(str(error))
        return bool(complaints)

    wait_for(complains, "nobody notices the second reader")
    return complaints[0]


def test_a_second_reader_that_comes_later_is_named(bench: _Bench) -> None:
    bench.start_meter()
    driver = bench.driver(network=False)
    driver.info()
    cat = bench.thief()
    complaint = _complaint(driver)
    assert f"in use by cat (process {cat.pid})" in complaint
    assert f"kill {cat.pid}" in complaint
    process.stop(cat)
    wait_for(lambda: _arms(driver), "the second reader is gone, and the driver does not see it")


def test_a_second_reader_behind_ser2net_is_noticed_by_what_goes_astray(
    bench: _Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.start_meter()
    bench.start_ser2net()
    driver = bench.driver(network=True)
    driver.arm()
    with caplog.at_level(logging.WARNING, logger="fsjoule"):
        bench.thief(greedy=False)
        wait_for(lambda: "another program probably reads its port" in caplog.text, "nobody notices the second reader")
    assert "fuser -v" in caplog.text
    trace = driver.disarm()
    assert any("of the meter's bytes are lost" in fault for fault in trace.faults)


def test_a_second_reader_behind_ser2net_that_gets_nearly_all_is_thought_of(bench: _Bench) -> None:
    bench.start_meter()
    bench.start_ser2net()
    driver = bench.driver(network=True)
    driver.info()
    bench.thief()
    assert re.search("another program (reads its bytes|probably reads its port)", _complaint(driver))


def test_ser2net_serves_two_and_neither_loses_anything(bench: _Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.start_meter()
    bench.start_ser2net()
    first, second = bench.driver(network=True), bench.driver(network=True)
    with caplog.at_level(logging.WARNING, logger="fsjoule"):
        first.arm()
        second.arm()
        time.sleep(4.5)  # two spans in which bytes could go astray
        counts = [driver.disarm().counts for driver in (first, second)]
    assert all(c.received > 2500 and (c.missed, c.lost) == (0, 0) for c in counts)
    assert caplog.text == ""


# ------------------------------------------------------------------------------------- what labgrid does meanwhile


def test_a_port_that_labgrid_takes_for_gone_does_not_end_the_recording(bench: _Bench) -> None:
    """Labgrid deactivates drivers of unavailable resources whenever it activates another driver."""
    bench.start_meter()
    bench.start_ser2net()
    driver = bench.driver(network=True)
    target = driver.target
    assert target is not None
    driver.arm()
    port: Any = target.get_resource("NetworkSerialPort", name="meter")
    port.avail = False
    target.last_update = 0
    target.update_resources()
    assert driver.state is BindingState.bound
    with pytest.raises(MeterError, match="finding the meter's port again failed"):
        driver.info()
    port.avail = True
    trace = driver.disarm()
    assert driver.state is BindingState.active
    assert trace.lost == trace.missed == 0
