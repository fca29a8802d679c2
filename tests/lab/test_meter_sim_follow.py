"""The meter's simulator in the time of a board that tells it: the same core, in step with events from a FIFO."""

from __future__ import annotations

import errno
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from meter_process import LIMIT_S, check_energy

from fsjoule.host import process
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand
from fsjoule.meter.protocol.frames import Frame, FrameDecoder, InfoFrame, ReplyFrame
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import Ina219Trace

_MS = 1_000_000
_EVENT = struct.Struct("<qIIdd")
_POWER_ON, _POWER, _MARK = 1, 2, 3


def power_on(time_ns: int = 0) -> bytes:
    return _EVENT.pack(time_ns, _POWER_ON, 0, 0.0, 0.0)


def power(time_ns: int, amperes: float) -> bytes:
    return _EVENT.pack(time_ns, _POWER, 0, 5.0, amperes)


def mark(time_ns: int, text: bytes) -> bytes:
    return b"".join(_EVENT.pack(time_ns + 400 * i, _MARK, byte, 0.0, 0.0) for i, byte in enumerate(text))


class Follower:
    """A meter that follows, with its host at the terminal."""

    def __init__(self, running: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = running
        self._fifo = _opened(folder / "fifo")
        self._host = os.open(folder / "stream", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self._decoder = FrameDecoder()
        self.frames: list[Frame] = []

    def tell(self, events: bytes) -> None:
        """What the board tells; it waits while the meter does, which may wait for its host."""
        deadline = time.monotonic() + LIMIT_S
        while not self.tell_now(events):
            assert time.monotonic() < deadline, "the meter takes nothing"
            self.read(0.01)

    def tell_now(self, events: bytes) -> bool:
        """Tell something, if there is room for it."""
        try:
            return os.write(self._fifo, events) == len(events)
        except BlockingIOError:
            return False

    def read(self, timeout_s: float) -> bool:
        if not select.select([self._host], [], [], timeout_s)[0]:
            return False
        self.frames += self._decoder.feed(os.read(self._host, 65536))
        return True

    def ask(self, command: MeterCommand, payload: bytes = b"") -> None:
        """Give a command and read until it is answered."""
        request = len(self.frames) + 1
        os.write(self._host, commands.encode(command, request, payload))
        deadline = time.monotonic() + LIMIT_S
        while not any(isinstance(f, ReplyFrame) and f.request == request for f in self.frames):
            assert time.monotonic() < deadline, "no reply"
            self.read(1.0)

    def trace(self) -> Ina219Trace:
        """All that was told until now."""
        self.ask(MeterCommand.STOP)  # also sends what would wait for a whole frame
        builder = TraceBuilder()
        builder.add(self.frames)
        counters = self._decoder.counters
        assert (counters.damaged, counters.lost) == (0, 0)
        return builder.build()

    def close(self) -> None:
        os.close(self._fifo)
        os.close(self._host)


def _opened(fifo: Path) -> int:
    """For writing: there is a reader only a moment after the meter has made its links."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


@contextmanager
def following(program: Path, folder: Path) -> Generator[Follower]:
    os.mkfifo(folder / "fifo")
    argv = [program, "--follow", folder / "fifo", "--stream-link", folder / "stream", "--rate-hz", "1000"]
    running = process.start(argv, log=folder / "log")
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (folder / "stream").exists():
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.01)
        follower = Follower(running, folder)
        try:
            yield follower
        finally:
            follower.close()
    finally:
        process.stop(running)


def test_the_meters_time_is_the_boards(program: Path, tmp_path: Path) -> None:
    amperes = [0.2 + 0.0001 * (number // 10 % 1000) for number in range(5000)]
    with following(program, tmp_path) as meter:
        meter.tell(power_on())
        for number, value in enumerate(amperes):
            meter.tell(power((number + 1) * _MS, value))
            if number == 2499:
                meter.tell(mark(2500 * _MS + 300_000, b"S1\n"))
                time.sleep(0.3)  # of the host, which is nobody's
        meter.tell(mark(5000 * _MS + 7000, b"E1\n") + power(5001 * _MS, 0.2))
        trace = meter.trace()
    assert (trace.missed, trace.lost) == (0, 0)
    assert trace.ticks.tolist() == list(range(5001))
    assert [(m.text, m.time_us) for m in trace.marks] == [("S1", 2_500_300), ("E1", 5_000_007)]
    assert float(trace.power_w[:5000].sum()) / 1000 == pytest.approx(5.0 * sum(amperes) / 1000, rel=1e-4)
    check_energy(trace)


def test_the_same_events_make_the_same_samples_however_they_arrive(program: Path, tmp_path: Path) -> None:
    """In whole and in pieces that cut events, with commands in between; the first stream is left out."""
    events = b"".join(power((i + 1) * _MS, 0.2 + 0.001 * (i % 97)) for i in range(3000))
    traces: list[Ina219Trace] = []
    for name, piece in (("whole", 4096), ("pieces", 45)):
        (tmp_path / name).mkdir()
        with following(program, tmp_path / name) as meter:
            meter.tell(power_on() + power(123_000, 0.1))
            # As the host arms the meter: a stream begins, and the chip's conversions with it.
            meter.ask(MeterCommand.RATE, commands.rate(1000))
            begin = max(i for i, f in enumerate(meter.frames) if isinstance(f, InfoFrame))
            del meter.frames[:begin]
            for at in range(0, len(events), piece):
                meter.tell(events[at : at + piece])
                if at % (piece * 20) == 0:
                    meter.ask(MeterCommand.INFO)
            traces.append(meter.trace())
    assert traces[0].ticks.tolist() == list(range(2999))
    assert traces[0].shunt_raw.tolist() == traces[1].shunt_raw.tolist()
    assert traces[0].times_us.tolist() == traces[1].times_us.tolist()


def test_while_time_stands_still_the_meter_still_answers_and_says_that_it_is_there(
    program: Path, tmp_path: Path
) -> None:
    with following(program, tmp_path) as meter:
        meter.tell(power_on() + power(100 * _MS, 0.3))
        meter.ask(MeterCommand.INFO)
        before = len(meter.frames)
        assert meter.read(LIMIT_S)
        assert {type(frame) for frame in meter.frames[before:]} == {InfoFrame}
        trace = meter.trace()
    assert len(trace.ticks) == 100


def test_a_reader_that_is_slow_holds_the_board_up_and_loses_nothing(program: Path, tmp_path: Path) -> None:
    """A minute of the board's time is more than FIFO and terminal hold; nobody reads for the first while."""
    with following(program, tmp_path) as meter:
        meter.tell(power_on())
        told = 0
        stuck_s = time.monotonic() + 0.5
        while time.monotonic() < stuck_s:
            if meter.tell_now(power((told + 1) * _MS, 0.25)):
                told += 1
                stuck_s = time.monotonic() + 0.5
        assert told < 60_000
        for number in range(told, 60_000):
            meter.tell(power((number + 1) * _MS, 0.25))
        trace = meter.trace()
    assert trace.ticks.tolist() == list(range(60_000))
    assert set(trace.shunt_raw.tolist()) == {2500}


def test_between_two_power_ons_no_time_passes(program: Path, tmp_path: Path) -> None:
    with following(program, tmp_path) as meter:
        meter.tell(power_on() + b"".join(power((i + 1) * _MS, 0.3) for i in range(50)) + mark(50 * _MS + 1000, b"A\n"))
        # The board's own time begins anew.
        meter.tell(power_on() + b"".join(power((i + 1) * _MS, 0.1) for i in range(50)) + mark(50 * _MS + 1000, b"B\n"))
        meter.tell(power(51 * _MS, 0.1))
        trace = meter.trace()
    assert len(trace.ticks) == 101
    assert [m.text for m in trace.marks] == ["A", "B"]
    assert trace.marks[1].time_us == 100_001
    assert trace.shunt_raw[:49].mean() > 2900
    assert trace.shunt_raw[52:].mean() < 1100


def test_it_ends_when_told_to_and_leaves_no_link(program: Path, tmp_path: Path) -> None:
    with following(program, tmp_path) as meter:
        os.kill(meter.process.pid, signal.SIGTERM)
        assert meter.process.wait(LIMIT_S) == 0
        assert not (tmp_path / "stream").is_symlink()
    assert "frames dropped 0" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    "options", [("--follow", "f"), ("--follow", "f", "--feed", "g", "--stream-link", "s"),
                ("--follow", "f", "--stream-link", "s", "--marks-link", "m"),
                ("--follow", "f", "--stream-link", "s", "--pin-link", "p")]
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(program: Path, options: tuple[str, ...]) -> None:
    done = process.run([program, *options], timeout_s=LIMIT_S, check=False)
    assert done.returncode == 2
    assert b"usage" in done.stderr
