"""The meter's firmware, built with Zephyr for the host, as a process: `make firmware-test` builds it and runs these."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from meter_process import LIMIT_S, Simulator, running

from fsjoule.host.paths import project_dir
from fsjoule.meter.links.client import CommandRefusedError, MeterClient
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.links.streams import TtyStream
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand, ReplyStatus
from fsjoule.model import Ina219Trace, MarkSource
from fsjoule.virtual.board.power import FeedWriter

_MS = 1_000_000
_LOAD = ("--load", "5.0,0.25")
_KILOHERTZ = ("--rate-hz", "1000")


@pytest.fixture(scope="module")
def program() -> Path:
    """The host build, unless it is missing or its sources have changed since."""
    built = project_dir() / "build/firmware/host/zephyr/zephyr.exe"
    if not built.exists():
        pytest.skip("the firmware is not built for the host: set ZEPHYR_BASE and run make firmware-test")
    folders = (project_dir() / "meter" / name for name in ("boards", "dts", "emulated", "lib", "src"))
    if max(path.stat().st_mtime for folder in folders for path in folder.rglob("*")) > built.stat().st_mtime:
        pytest.skip("the firmware is older than its sources: set ZEPHYR_BASE and run make firmware-test")
    return built


@dataclass
class _Meter:
    program: Simulator
    client: MeterClient

    def record(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> Ina219Trace:
        self.client.receiver.arm()
        meanwhile()
        time.sleep(seconds)
        return self.client.receiver.disarm()


@contextmanager
def _running(program: Path, folder: Path, *options: str) -> Generator[_Meter]:
    with running(program, folder, *options) as firmware:
        receiver = Receiver(lambda: TtyStream(str(firmware.stream)))
        try:
            yield _Meter(firmware, MeterClient(receiver))
        finally:
            receiver.close()
    assert firmware.process.returncode == 0, firmware.log.read_text()
    assert not firmware.stream.is_symlink()
    assert not firmware.marks.is_symlink()


def _check_whole(trace: Ina219Trace) -> None:
    """No tick is missed or lost, and they are one period apart."""
    assert (trace.missed, trace.lost, trace.faults) == (0, 0, ())
    assert np.diff(trace.ticks).tolist() == [1] * (len(trace.ticks) - 1)
    period_us = 1_000_000 // trace.info.rate_hz
    assert np.diff(trace.times_us).tolist() == [period_us] * (len(trace.times_us) - 1)


def test_it_says_what_it_is(program: Path, tmp_path: Path) -> None:
    with _running(program, tmp_path, *_LOAD, "--serial-number", "BENCH-7", "--shunt-uohm", "50000") as meter:
        frame = meter.client.info()
    info, status = frame.info, frame.status
    assert (info.serial_number, info.simulated, info.rate_hz, info.shunt_uohm) == ("BENCH-7", True, 625, 50_000)
    assert (project_dir() / "meter/VERSION").read_text().split()[2] == info.firmware.split(".")[0]
    assert (status.sampling, status.unsaved, status.i2c_faults, status.frames_dropped) == (True, False, 0, 0)


def test_a_thousand_samples_a_second_and_none_is_missed(program: Path, tmp_path: Path) -> None:
    with _running(program, tmp_path, *_LOAD, *_KILOHERTZ) as meter:
        trace = meter.record(5.0)
    _check_whole(trace)
    assert len(trace.ticks) >= 5000
    assert trace.power_w.tolist() == pytest.approx([1.25] * len(trace.ticks))


@pytest.mark.parametrize("rate_hz", [100, 320, 625, 1600, 2000])
def test_a_rate_is_held_with_the_time_that_the_bus_takes(program: Path, tmp_path: Path, rate_hz: int) -> None:
    with _running(program, tmp_path, *_LOAD) as meter:
        assert meter.client.set_rate(rate_hz).info.rate_hz == rate_hz
        trace = meter.record(2.0)
    _check_whole(trace)
    assert len(trace.ticks) >= 2 * rate_hz


def test_marks_have_the_times_at_which_they_came(program: Path, tmp_path: Path) -> None:
    with _running(program, tmp_path, *_LOAD) as meter:
        meter.client.receiver.arm()
        before_s = time.monotonic()
        meter.program.send(b"S12\n")
        time.sleep(1.0)
        meter.program.send(b"E12\r\n")
        after_s = time.monotonic()
        time.sleep(0.5)
        meter.client.mark("host")
        trace = meter.client.receiver.disarm()
    start, stop, host = trace.marks
    assert [(start.text, start.source), (stop.text, stop.source), (host.text, host.source)] == [
        ("S12", MarkSource.LINE),
        ("E12", MarkSource.LINE),
        ("host", MarkSource.HOST),
    ]
    # They cannot be further apart than the host's own times, but for the program's wait for a processor.
    assert 0.5e6 < stop.time_us - start.time_us < (after_s - before_s) * 1e6 + 500e3
    _check_whole(trace)


def test_a_machine_that_stands_still_loses_nothing(program: Path, tmp_path: Path) -> None:
    def stand_still() -> None:
        meter.program.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        meter.program.process.send_signal(signal.SIGCONT)

    with _running(program, tmp_path, *_LOAD, *_KILOHERTZ) as meter:
        trace = meter.record(1.0, stand_still)
    _check_whole(trace)
    assert len(trace.ticks) >= 2400


def test_a_feed_gives_the_values(program: Path, tmp_path: Path) -> None:
    feed = FeedWriter(tmp_path / "feed")
    steps = [0.2] * 400 + [0.4] * 500 + [0.1] * 300 + [0.0]

    def draw() -> None:
        begin_ns = time.monotonic_ns() + 200 * _MS
        feed.append(begin_ns, 0.0, 0.0)
        for number, amperes in enumerate(steps, start=1):
            feed.append(begin_ns + number * _MS, 5.0, amperes)

    with _running(program, tmp_path, "--feed", str(tmp_path / "feed"), *_KILOHERTZ) as meter:
        trace = meter.record(2.5, draw)
    feed.close()
    _check_whole(trace)
    # Whole steps, with at most two samples of a mixture at each edge.
    for amperes, count in ((0.2, 400), (0.4, 500), (0.1, 300)):
        assert abs(np.count_nonzero(trace.shunt_raw == round(amperes * 10_000)) - count) <= 2
    assert float(trace.power_w.sum()) / 1000 == pytest.approx(5.0 * sum(steps) / 1000, rel=2e-3)


def test_a_bus_that_is_held_is_freed_and_the_gap_counted(program: Path, tmp_path: Path) -> None:
    with _running(program, tmp_path, *_LOAD) as meter:
        trace = meter.record(1.0, lambda: meter.program.process.send_signal(signal.SIGUSR1))
        status = meter.client.info().status
        after = meter.record(1.0)
    assert 1 <= trace.missed <= 2
    assert trace.counts.expected == len(trace.ticks) + trace.missed
    assert any("I2C" in fault for fault in trace.faults)
    assert status.i2c_faults >= 1
    _check_whole(after)


def test_a_chip_that_is_unplugged_is_missed_and_comes_back(program: Path, tmp_path: Path) -> None:
    def unplug() -> None:
        meter.program.process.send_signal(signal.SIGUSR2)
        time.sleep(0.5)
        with pytest.raises(CommandRefusedError) as refused:
            meter.client.command(MeterCommand.ZERO, commands.zero(1))
        assert refused.value.status == ReplyStatus.CHIP_SILENT
        meter.program.process.send_signal(signal.SIGUSR2)

    with _running(program, tmp_path, *_LOAD, *_KILOHERTZ) as meter:
        trace = meter.record(1.0, unplug)
        after = meter.record(1.0)
    assert trace.missed >= 400
    assert trace.counts.expected == len(trace.ticks) + trace.missed
    _check_whole(after)


def test_commands_that_it_cannot_follow_are_refused(program: Path, tmp_path: Path) -> None:
    with _running(program, tmp_path, *_LOAD) as meter:
        assert meter.client.command(MeterCommand.SELF_TEST) == (0, 2500, 1250)
        with pytest.raises(CommandRefusedError) as refused:
            meter.client.command(MeterCommand.RATE, (3000).to_bytes(4, "little"))
        assert refused.value.status in (ReplyStatus.RATE, ReplyStatus.REFUSED)
        with pytest.raises(CommandRefusedError) as refused:
            meter.client.command(MeterCommand.ZERO, commands.zero(1))  # a quarter of an ampere flows
        assert refused.value.status == ReplyStatus.REFUSED
        _check_whole(meter.record(0.5))


def test_what_was_saved_is_there_after_a_restart(program: Path, tmp_path: Path) -> None:
    options = (*_LOAD, "--storage", str(tmp_path / "storage"))
    streams: set[int] = set()
    with _running(program, tmp_path, *options) as meter:
        assert meter.client.set_rate(500).status.unsaved
        assert meter.client.save() == 1
        meter.client.set_rate(250)
        streams.add(meter.client.info().status.stream_id)
    with _running(program, tmp_path, *options) as meter:
        frame = meter.client.info()
        streams.add(frame.status.stream_id)
        assert (frame.info.rate_hz, frame.status.unsaved, frame.status.settings_damaged) == (500, False, False)
        _check_whole(meter.record(0.5))
    # Another power-up has other streams.
    assert len(streams) == 2


def test_the_chip_errs_as_it_is_told(program: Path, tmp_path: Path) -> None:
    """The offset that a calibration at no load finds is the one that the chip was given."""
    with _running(program, tmp_path, "--load", "5.0,0", "--chip-offset-uv", "120", "--chip-noise-uv", "20") as meter:
        offset_nv, spread_nv, samples = meter.client.command(MeterCommand.ZERO, commands.zero(1))
        frame = meter.client.info()
    assert offset_nv == pytest.approx(120_000, abs=3000)
    assert spread_nv > 0
    assert samples == 625
    assert frame.info.calibration.shunt_offset_nv == offset_nv


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "usage:"),
        (("--load", "5,0.2", "--storage", "/nowhere/storage"), "/nowhere/storage"),
        (("--load", "much"), "--load much: must be"),
        (("--load", "5,0.2", "--pin-link", "pin"), "only the simulator has the mark pin"),
        (("--load", "5,0.2", "--stream-link", "/nowhere/stream"), "/nowhere/stream"),
    ],
)
def test_a_wrong_command_line_is_refused(
    program: Path, tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    links = ("--stream-link", str(tmp_path / "stream"), "--marks-link", str(tmp_path / "marks"))
    done = subprocess.run(
        [str(program), *(links if options else ()), *options],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr
