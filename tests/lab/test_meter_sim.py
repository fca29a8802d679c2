"""The meter's simulator as a process: its stream and its marks through real pseudo terminals."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from meter_process import LIMIT_S, check_energy, check_order, infos, running, values
from waiting import wait_for

from fsjoule.host import process
from fsjoule.meter.protocol.commands import MeterCommand, ReplyStatus
from fsjoule.meter.protocol.frames import SamplesFrame
from fsjoule.model import InputCounts, MarkLine, MarkSource
from fsjoule.model.mark_line import check_of
from fsjoule.virtual.board.power import FeedWriter

LED = "/sys/class/leds/fsjoule-mark/brightness"

_MS = 1_000_000
# A tick for each record of a feed.
KILOHERTZ = ("--rate-hz", "1000")


# --------------------------------------------------------------------------------------------------- constant load


def test_a_constant_load(program: Path, tmp_path: Path) -> None:
    options = ("--load", "5.0,0.25", "--serial-number", "BENCH-7")
    with running(program, tmp_path, *options) as simulator, simulator.reader() as reader:
        reader.read_samples(2000)
        frames = reader.read_until(lambda frames: len(infos(frames)) >= 2)
    trace = reader.trace()
    info = trace.info
    assert (info.serial_number, info.simulated, info.rate_hz, info.shunt_uohm) == ("BENCH-7", True, 625, 100_000)
    assert trace.power_w.tolist() == pytest.approx([1.25] * len(trace.ticks))
    assert np.diff(trace.ticks).tolist() == [1] * (len(trace.ticks) - 1)
    assert np.diff(trace.times_us).tolist() == [1600] * (len(trace.ticks) - 1)
    assert (trace.missed, trace.lost, trace.faults) == (0, 0, ())
    check_energy(trace)
    counters = reader.decoder.counters
    assert (counters.damaged, counters.lost, counters.duplicates, counters.unknown) == (0, 0, 0, 0)
    assert {(frame.info.adc_config, frame.status.sampling) for frame in infos(frames)} == {(0x099F, True)}


def test_another_shunt_and_rate(program: Path, tmp_path: Path) -> None:
    options = ("--load", "3.304,-0.4", "--shunt-uohm", "50000", "--rate-hz", "320")
    with running(program, tmp_path, *options) as simulator, simulator.reader() as reader:
        reader.read_samples(400)
    trace = reader.trace()
    assert trace.power_w.tolist() == pytest.approx([-1.3216] * len(trace.ticks))
    assert np.abs(trace.times_us - trace.ticks * 3125).max() == 0
    check_energy(trace)


def test_a_load_beyond_the_range_is_said(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,1.0") as simulator, simulator.reader() as reader:
        reader.read_samples(100)
    trace = reader.trace()
    assert set(trace.shunt_raw.tolist()) == {8000}
    assert "reached the end of the meter's range" in trace.faults[0]


# ----------------------------------------------------------------------------------------------------------- marks


def test_marks_come_in_order_with_their_times(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,0.25") as simulator, simulator.reader() as reader:
        reader.read_samples(100)
        before_s = time.monotonic()
        simulator.send(b"S12\n")
        reader.read_marks(1)
        reader.read_samples(800)
        simulator.send(b"E12\r\n")
        after_s = time.monotonic()
        reader.read_marks(2)
        simulator.send(b"\n\x00\xff")
        simulator.send(b"no line end")
        frames = reader.read_marks(3)
    start, stop, silent = reader.trace().marks
    assert [start.text, stop.text, silent.text] == ["S12", "E12", "no line end"]
    # They cannot be further apart than the host's own times, but for the simulator's wait for a processor.
    assert 0 < stop.time_us - start.time_us < (after_s - before_s) * 1e6 + 500e3
    check_order(frames)
    check_energy(reader.trace())


def test_the_mark_line_outlives_the_board(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,0.25") as simulator, simulator.reader() as reader:
        for number in range(5):
            simulator.send(b"S%d\n" % number)
        reader.read_marks(5)
        reader.read_samples(1)
    assert [mark.text for mark in reader.trace().marks] == ["S0", "S1", "S2", "S3", "S4"]


def test_marks_with_checks_and_damaged_ones(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,0.25") as simulator, simulator.reader() as reader:
        simulator.send(b"~S12~3818\n~S1\n~E12~3414\nE12\n~E12~3415\r\n")
        reader.read_marks(5)
        reader.read_samples(1)
        assert reader.command(MeterCommand.INFO).status == ReplyStatus.DONE
    trace = reader.trace()
    assert [(mark.text, mark.checked) for mark in trace.marks] == [("S12", True), ("E12", False), ("E12", True)]
    assert trace.faults == ("2 marks damaged on the mark line: '~S1', '~E12~3414'",)
    assert reader.info().status.inputs == InputCounts(marks_damaged=2)
    # A line that sends checks sends no mark of the work without one.
    assert [mark.text for mark in MarkLine("").marks(trace.marks)] == ["S12", "E12"]


def test_a_meter_at_a_console_keeps_its_time_and_finds_the_marks(program: Path, tmp_path: Path) -> None:
    """A wire from the console's output at its speed: boot messages, short lines, and messages within a mark."""
    talk = b"".join(b"[%12.6f] message %d of the kernel, longer than a mark\r\n" % (n / 100, n) for n in range(150))
    short, prompt = b"a\n" * 500, b"root@board:~# \x1b[0m\r\n"
    damaged = b"~E2~[   12.345678] EXT4-fs error\r\n2142\r\n"
    start, second = (f"~{text}~{check_of(text)}\r\n".encode() for text in ("S1", "S2"))
    said = b"".join([talk, start, short, prompt, b"~E1~2141\r\n", talk, second, damaged])
    with running(program, tmp_path, "--load", "5.0,0.25") as simulator, simulator.reader() as reader:
        reader.read_samples(100)

        def speak() -> None:
            for line in said.splitlines(keepends=True):
                simulator.send(line)
                time.sleep(len(line) / 11520)  # 115200 baud, or less on a busy computer

        speaking = threading.Thread(target=speak)
        speaking.start()
        frames = reader.read_marks(806)
        speaking.join(LIMIT_S)
        reader.read_samples(len(values(frames)) + 100)
    trace = reader.trace()
    assert [mark.text for mark in MarkLine("", on_console=True).marks(trace.marks)] == ["S1", "E1", "S2"]
    assert (trace.missed, trace.lost) == (0, 0)
    check_order(reader.frames)
    check_energy(trace)


def test_edges_of_the_pin_come_in_order_with_marks_of_the_line(program: Path, tmp_path: Path) -> None:
    """A level that is no other one is no edge, and a level of a board without power is low."""
    pin = tmp_path / "pin"
    options = ("--load", "5.0,0.25", "--pin-link", str(pin))
    with running(program, tmp_path, *options) as simulator, simulator.reader() as reader:
        reader.read_samples(100)
        simulator.set_pin(b"01")
        reader.read_marks(1)
        simulator.send(b"S1\n")
        reader.read_marks(2)
        simulator.set_pin(b"1x0")
        frames = reader.read_marks(3)
    trace = reader.trace()
    assert [(mark.source, mark.text) for mark in trace.marks] == [
        (MarkSource.RISING, ""), (MarkSource.LINE, "S1"), (MarkSource.FALLING, ""),
    ]  # fmt: skip
    assert [mark.text for mark in MarkLine(LED).marks(trace.marks)] == ["rising edge", "falling edge"]
    assert (trace.missed, trace.lost) == (0, 0)
    check_order(frames)
    check_energy(trace)
    assert not pin.is_symlink()


# ---------------------------------------------------------------------------------------------------- nobody reads


def test_what_nobody_reads_is_dropped_whole_and_counted(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,0.25", *KILOHERTZ) as simulator:
        with simulator.reader() as first:
            first.read_samples(40)
        time.sleep(1.0)
        with simulator.reader() as second:
            second.decoder = first.decoder
            second.frames = first.frames
            first_new = len(first.frames)
            frames = second.read_samples(len(values(first.frames)) + 200)
    counters = second.decoder.counters
    # The first reader may have left in the middle of a frame.
    assert counters.damaged <= 1
    assert counters.lost >= 40
    trace = second.trace()
    assert trace.missed == 0
    assert trace.lost >= 800
    new = next(frame for frame in frames[first_new:] if isinstance(frame, SamplesFrame))
    # No joule is lost with the frames: the cumulative energy goes on.
    assert new.energy_raw == 2500 * 1250 * new.first_tick
    assert trace.counts.expected == trace.ticks[-1] - trace.ticks[0] + 1


# ------------------------------------------------------------------------------------------------------------ feed


def _write(feed: FeedWriter, begin_ns: int, amperes: list[float]) -> int:
    """One record a millisecond, the first 1 ms after `begin_ns`; returns the time of the last one."""
    for number, value in enumerate(amperes, start=1):
        feed.append(begin_ns + number * _MS, 5.0, value)
    return begin_ns + len(amperes) * _MS


def test_a_feed_gives_the_values(program: Path, tmp_path: Path) -> None:
    feed = FeedWriter(tmp_path / "feed")
    steps = [0.2] * 400 + [0.4] * 500 + [0.1] * 300 + [0.0]
    with (
        running(program, tmp_path, "--feed", str(tmp_path / "feed"), *KILOHERTZ) as simulator,
        simulator.reader() as reader,
    ):
        begin_ns = time.monotonic_ns() + 200 * _MS
        feed.append(begin_ns, 0.0, 0.0)
        _write(feed, begin_ns, steps)
        reader.read_samples(2500)
    feed.close()
    trace = reader.trace()
    assert (trace.missed, trace.lost) == (0, 0)
    check_energy(trace)
    shunt = trace.shunt_raw.astype(np.int64)
    # Whole steps, with at most two samples of a mixture at each edge.
    for amperes, count in ((0.2, 400), (0.4, 500), (0.1, 300)):
        assert abs(np.count_nonzero(shunt == amperes * 10_000) - count) <= 2
    assert float(trace.power_w.sum()) / 1000 == pytest.approx(5.0 * sum(steps) / 1000, rel=2e-3)
    # It is gone after its last record: 0 A, and the ticks go on.
    assert trace.ticks[-1] - trace.ticks[np.flatnonzero(shunt)[-1]] > 500
    assert np.diff(trace.ticks).tolist() == [1] * (len(trace.ticks) - 1)


def test_a_feed_that_comes_late_delays_samples_and_changes_none(program: Path, tmp_path: Path) -> None:
    feed = FeedWriter(tmp_path / "feed")
    with (
        running(program, tmp_path, "--feed", str(tmp_path / "feed"), *KILOHERTZ) as simulator,
        simulator.reader() as reader,
    ):
        last_ns = time.monotonic_ns()
        feed.append(last_ns, 0.0, 0.0)
        for _ in range(10):
            wait_for(lambda last_ns=last_ns: time.monotonic_ns() > last_ns + 120 * _MS, lambda: "time stands still")
            last_ns = _write(feed, last_ns, [0.2] * 100)
        reader.read_samples(1000)
    feed.close()
    trace = reader.trace()
    powered = np.flatnonzero(trace.shunt_raw)
    assert (trace.missed, trace.lost) == (0, 0)
    assert set(trace.shunt_raw[powered[2] : powered[-1] - 2].tolist()) == {2000}


def test_without_a_feed_there_is_no_current(program: Path, tmp_path: Path) -> None:
    with (
        running(program, tmp_path, "--feed", str(tmp_path / "absent"), *KILOHERTZ) as simulator,
        simulator.reader() as reader,
    ):
        assert set(values(reader.read_samples(1000))) == {(0, 0)}
        feed = FeedWriter(tmp_path / "absent")
        _write(feed, time.monotonic_ns(), [0.2] * 1000)
        reader.read_until(lambda frames: (2000, 1250) in values(frames))
    feed.close()
    assert reader.trace().missed == 0


# ----------------------------------------------------------------------------------------------------- the process


def test_it_ends_cleanly(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,0.25") as simulator:
        simulator.process.send_signal(signal.SIGTERM)
        assert simulator.process.wait(LIMIT_S) == 0
        assert not simulator.stream.is_symlink()
        assert not simulator.marks.is_symlink()
        assert " missed 0; frames dropped 0" in simulator.log.read_text()


def test_it_ends_with_its_parent(program: Path, tmp_path: Path) -> None:
    stream, marks = tmp_path / "stream", tmp_path / "marks"
    argv = [str(program), "--stream-link", str(stream), "--marks-link", str(marks), "--load", "5,0"]
    parent = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run({argv!r})"])
    try:
        wait_for(lambda: stream.exists() and marks.exists(), lambda: "no terminals")
    finally:
        parent.kill()
        parent.wait(LIMIT_S)
    wait_for(lambda: not stream.is_symlink() and not marks.is_symlink(), lambda: "it outlived its parent")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "usage: fsjoule-meter-sim"),
        (("--load", "5,0.2", "--feed", "x"), "usage: fsjoule-meter-sim"),
        (("--load", "5"), "--load 5: must be volts"),
        (("--load", "nan,1"), "--load nan,1: must be volts"),
        (("--load", "5,0.2", "--rate-hz", "2500"), "--rate-hz 2500: must be a divisor of a million from 100 to 2000"),
        (("--load", "5,0.2", "--rate-hz", "300"), "--rate-hz 300: must be a divisor of a million from 100 to 2000"),
        (("--load", "5,0.2", "--range-mv", "100"), "--range-mv 100: must be 40, 80, 160 or 320"),
        (("--load", "5,0.2", "--chip-noise-uv", "-1"), "--chip-noise-uv -1: must be a number from 0 to 10000"),
        (("--load", "5,0.2", "--chip-gain-ppm", "inf"), "--chip-gain-ppm inf: must be a number from -100000 to 100000"),
        (("--replay", "x"), "usage: fsjoule-meter-sim"),
        (("--load", "5,0.2", "--unknown"), "usage: fsjoule-meter-sim"),
        (("--load", "5,0.2", "--shunt-uohm", "0"), "--shunt-uohm 0: must be a number from 1000 to 1000000"),
        (("--load", "5,0.2", "--serial-number", "x" * 17), "must be 1 to 16 printable characters"),
    ],
)
def test_bad_options(program: Path, tmp_path: Path, options: tuple[str, ...], complaint: str) -> None:
    links = ["--stream-link", str(tmp_path / "stream"), "--marks-link", str(tmp_path / "marks")]
    done = process.run([program, *links, *options], timeout_s=LIMIT_S, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr.decode()


def test_a_place_where_no_storage_can_be(program: Path, tmp_path: Path) -> None:
    links = ["--stream-link", str(tmp_path / "stream"), "--marks-link", str(tmp_path / "marks")]
    options = ["--load", "5,0", "--storage", str(tmp_path / "absent" / "flash")]
    done = process.run([program, *links, *options], timeout_s=LIMIT_S, check=False)
    assert done.returncode == 1
    assert "absent/flash: No such file or directory" in done.stderr.decode()


def test_a_place_where_no_link_can_be(program: Path, tmp_path: Path) -> None:
    links = ["--stream-link", str(tmp_path / "absent" / "stream"), "--marks-link", str(tmp_path / "marks")]
    done = process.run([program, *links, "--load", "5,0"], timeout_s=LIMIT_S, check=False)
    assert done.returncode == 1
    assert "making the links: No such file or directory" in done.stderr.decode()
