"""Commands to the meter's simulator: through a real pseudo terminal, and over a loss of power."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import meter_wire
import pytest
from meter_process import Board, check_energy, check_order, infos, last_stream, running, values

from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand, ReplyStatus
from fsjoule.meter.protocol.frames import ReplyFrame
from fsjoule.model import MarkSource
from fsjoule.virtual.board.power import FeedWriter

# -------------------------------------------------------------------------------------------------------- commands


def test_commands_change_the_stream(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,0.25") as simulator, simulator.reader() as reader:
        reader.read_samples(100)
        streams = [reader.info().status.stream_id]
        for command, payload in (
            (MeterCommand.RATE, commands.rate(2000)),
            (MeterCommand.RANGE, commands.measuring_range(40)),
            (MeterCommand.SHUNT, commands.shunt(50_000)),
            (MeterCommand.RESET_ENERGY, b""),
        ):
            assert reader.command(command, payload).status == ReplyStatus.DONE
            streams.append(reader.info().status.stream_id)
            reader.read_samples(len(values(reader.frames)) + 100)
        assert reader.command(MeterCommand.STOP).status == ReplyStatus.DONE
        stopped = reader.info()
        count = len(values(reader.frames))
        said = len(infos(reader.frames))
        reader.read_until(lambda frames: len(infos(frames)) >= said + 2)
        assert len(values(reader.frames)) == count
        assert reader.command(MeterCommand.START).status == ReplyStatus.DONE
        reader.read_samples(count + 100)
    assert [second - first for first, second in itertools.pairwise(streams)] == [1, 1, 1, 1]
    info = stopped.info
    assert (info.rate_hz, info.shunt_range_mv, info.shunt_uohm, info.adc_config) == (2000, 40, 50_000, 0x0097)
    assert (stopped.status.sampling, stopped.status.unsaved) == (False, True)
    counters = reader.decoder.counters
    assert (counters.damaged, counters.lost, counters.duplicates, counters.unknown) == (0, 0, 0, 0)
    # Each stream begins at tick 0, and its last frame carries its energy.
    trace = last_stream(reader.frames)
    assert trace.ticks[0] == trace.checkpoint_raw[0] == 0
    check_energy(trace)


def test_bad_commands_are_answered(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,0.25") as simulator, simulator.reader() as reader:
        reader.read_samples(1)
        assert reader.command(MeterCommand.RATE, b"12345").status == ReplyStatus.WRONG_LENGTH
        assert reader.command(MeterCommand.RATE, (300).to_bytes(4, "little")).status == ReplyStatus.RATE
        os.write(reader.fd, meter_wire.frame(0x77, 77, b""))
        assert reader.read_reply(77).status == ReplyStatus.UNKNOWN_COMMAND
        os.write(reader.fd, meter_wire.frame(MeterCommand.STOP, 78, b"", protocol=2))
        assert reader.read_reply(78).status == ReplyStatus.OTHER_PROTOCOL
        # Damaged and truncated ones cannot be told apart by their numbers.
        os.write(reader.fd, b"noise\0")
        assert reader.read_reply(0).status == ReplyStatus.DAMAGED
        os.write(reader.fd, commands.encode(MeterCommand.STOP, 79)[:7])
        reader.read_until(lambda frames: sum(isinstance(frame, ReplyFrame) for frame in frames) == 6)
        assert reader.info().status.sampling
        assert reader.command(MeterCommand.INFO).status == ReplyStatus.DONE


def test_a_mark_of_the_host(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,0.25") as simulator, simulator.reader() as reader:
        reader.read_samples(100)
        simulator.send(b"S1\n")
        reader.read_marks(1)
        assert reader.command(MeterCommand.MARK, commands.mark("here")).status == ReplyStatus.DONE
        frames = reader.read_samples(500)
    assert [(mark.text, mark.source) for mark in reader.trace().marks] == [
        ("S1", MarkSource.LINE),
        ("here", MarkSource.HOST),
    ]
    check_order(frames)


def test_self_test(program: Path, tmp_path: Path) -> None:
    storage = ("--storage", str(tmp_path / "flash"))
    with running(program, tmp_path, "--load", "5.0,0.25", *storage) as simulator, simulator.reader() as reader:
        assert reader.command(MeterCommand.SELF_TEST).values == (0, 2500, 1250)
    with running(program, tmp_path, "--load", "5.0,1.0") as simulator, simulator.reader() as reader:
        failures, shunt, bus = reader.command(MeterCommand.SELF_TEST).values
    assert (failures, shunt, bus) == (0x30, 8000, 1250)


# ------------------------------------------------------------------------------------------ calibration and storage


def test_a_calibration_takes_the_chips_errors_away(program: Path, tmp_path: Path) -> None:
    """The load is changed between the two points: by a feed, as on a virtual board."""
    chip = ("--chip-offset-uv", "180", "--chip-gain-ppm", "-21000", "--chip-bus-gain-ppm", "8000")
    noise = ("--chip-noise-uv", "40", "--chip-seed", "7")
    board = Board(FeedWriter(tmp_path / "feed"))
    options = ("--feed", str(tmp_path / "feed"), *chip, *noise)
    with board.feeding(), running(program, tmp_path, *options) as simulator, simulator.reader() as reader:
        board.draw(5.1, 0.0)
        zero = reader.command(MeterCommand.ZERO, commands.zero(1_800_000_000))
        assert zero.status == ReplyStatus.DONE
        assert zero.values[0] == pytest.approx(180_000, abs=8_000)
        board.draw(5.1, 0.02)
        assert reader.command(MeterCommand.GAIN, commands.gain(1, 20_000, 5_100_000, 500, 1_800_000_001)).status == 0
        board.draw(4.9, 0.6)
        assert reader.command(MeterCommand.ZERO, commands.zero(1_800_000_002)).status == ReplyStatus.REFUSED
        high = reader.command(MeterCommand.GAIN, commands.gain(2, 600_000, 4_900_000, 500, 1_800_000_003))
        assert high.status == ReplyStatus.DONE
        reader.read_samples(len(values(reader.frames)) + 2000)
    calibration = reader.info().info.calibration
    assert calibration.shunt_offset_nv == pytest.approx(180_000, abs=10_000)
    assert calibration.current_gain_ppm == pytest.approx(21_450, abs=300)
    assert calibration.bus_gain_ppm == pytest.approx(-7_940, abs=500)
    assert (calibration.zero_date, calibration.gain_date) == (1_800_000_003, 1_800_000_003)
    # The last stream, which the calibration began, has the true power. While a busy computer starves the feed's writer,
    # the supply is 0 V: no other sample may differ.
    power_w = last_stream(reader.frames).power_w
    assert power_w[power_w > 0].mean() == pytest.approx(0.6 * 4.9, rel=1e-3)


def test_saved_settings_survive(program: Path, tmp_path: Path) -> None:
    options = ("--load", "5.0,0.0", "--chip-offset-uv", "-70", "--storage", str(tmp_path / "flash"))
    with running(program, tmp_path, *options) as simulator, simulator.reader() as reader:
        assert reader.command(MeterCommand.RATE, commands.rate(500)).status == ReplyStatus.DONE
        assert reader.command(MeterCommand.ZERO, commands.zero(1_800_000_000)).status == ReplyStatus.DONE
        assert reader.info().status.unsaved
        assert reader.command(MeterCommand.SAVE).values == (1, 0, 0)
        assert not reader.info().status.unsaved
        assert reader.command(MeterCommand.RATE, commands.rate(100)).status == ReplyStatus.DONE
        simulator.process.kill()
    with running(program, tmp_path, *options) as simulator, simulator.reader() as reader:
        reader.read_samples(10)
        assert reader.info().info.rate_hz == 500
        assert reader.info().info.calibration.shunt_offset_nv == -70_000
        assert (reader.info().status.unsaved, reader.info().status.settings_damaged) == (False, False)
        assert reader.command(MeterCommand.FORGET_CALIBRATION).status == ReplyStatus.DONE
        assert reader.command(MeterCommand.SAVE).values == (2, 0, 0)
    # The newer record is torn: the one before counts.
    with (tmp_path / "flash").open("r+b") as flash:
        flash.seek(4096 + 30)
        flash.write(b"torn")
    with running(program, tmp_path, *options) as simulator, simulator.reader() as reader:
        reader.read_samples(10)
        assert reader.info().info.calibration.shunt_offset_nv == -70_000
        assert reader.info().status.settings_damaged


def test_a_link_that_another_left_is_not_taken_for_this_meters(program: Path, tmp_path: Path) -> None:
    """The terminal of a killed meter can be somebody else's by now, here that of a meter with other settings."""
    other, own = tmp_path / "other", tmp_path / "own"
    other.mkdir()
    own.mkdir()
    with running(program, other, "--load", "5.0,0.25") as another, another.reader() as reader:
        assert reader.command(MeterCommand.RATE, commands.rate(2000)).status == ReplyStatus.DONE
        for name in ("stream", "marks"):
            (own / name).symlink_to((other / name).readlink())
        with running(program, own, "--load", "5.0,0.25") as simulator, simulator.reader() as found:
            found.read_samples(10)
            assert found.info().info.rate_hz == 625


def test_without_storage_nothing_is_saved(program: Path, tmp_path: Path) -> None:
    with running(program, tmp_path, "--load", "5.0,0.25") as simulator, simulator.reader() as reader:
        assert reader.command(MeterCommand.SAVE).status == ReplyStatus.NOT_STORED
