"""The meter's simulator with a file in place of a board: the same core, as fast as it can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from meter_process import LIMIT_S, check_energy

from fsjoule.host import process
from fsjoule.meter.protocol.frames import FrameDecoder, SamplesFrame
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import Ina219Trace
from fsjoule.virtual.board.power import FEED_RECORD

_MS = 1_000_000


def _replay(program: Path, records: bytes, *options: str) -> tuple[Ina219Trace, bytes]:
    """What the meter makes of records, and its stream."""
    done = process.run([program, "--replay", "/dev/stdin", *options], timeout_s=LIMIT_S, input_bytes=records)
    decoder = FrameDecoder()
    builder = TraceBuilder()
    builder.add(decoder.feed(done.stdout))
    assert (decoder.counters.damaged, decoder.counters.lost) == (0, 0)
    return builder.build(), done.stdout


def _records(begin_ns: int, amperes: list[float]) -> bytes:
    values = enumerate([0.0, *amperes])
    return b"".join(FEED_RECORD.pack(begin_ns + number * _MS, 5.0, value) for number, value in values)


def test_a_replay_has_every_tick_of_the_file(program: Path) -> None:
    amperes = [0.2 + 0.0001 * (number // 50 % 2000) for number in range(60_000)]
    trace, stream = _replay(program, _records(-(10**15), amperes), "--rate-hz", "1000")
    assert (trace.missed, trace.lost) == (0, 0)
    assert trace.ticks.tolist() == list(range(60_000))
    assert trace.times_us.tolist() == list(range(0, 60_000_000, 1000))
    assert float(trace.power_w.sum()) / 1000 == pytest.approx(5.0 * sum(amperes) / 1000, rel=1e-4)
    check_energy(trace)
    # The last frame carries the energy of all samples.
    assert trace.checkpoint_ticks[-1] == 60_000
    # The same again but for what is drawn at random at every start: the stream's number.
    again = _replay(program, _records(-(10**15), amperes), "--rate-hz", "1000")[1]
    frames = [FrameDecoder().feed(data) for data in (stream, again)]
    samples = [[replace(frame, stream_id=0) for frame in each if isinstance(frame, SamplesFrame)] for each in frames]
    assert samples[0] == samples[1]


def test_a_replay_with_another_rate_and_a_chip_that_errs(program: Path) -> None:
    options = ("--rate-hz", "2000", "--range-mv", "160", "--shunt-uohm", "50000", "--chip-offset-uv", "100")
    trace, _ = _replay(program, _records(5, [1.5] * 3000), *options, "--chip-gain-ppm", "10000")
    assert (trace.info.rate_hz, trace.info.shunt_range_mv, len(trace.ticks)) == (2000, 160, 6000)
    # 75 mV and 1 % of it and 100 uV, in steps of 20 uV.
    assert set(trace.shunt_raw.tolist()) == {7584}
    noisy, _ = _replay(program, _records(5, [1.5] * 3000), *options, "--chip-noise-uv", "100", "--chip-seed", "1")
    other, _ = _replay(program, _records(5, [1.5] * 3000), *options, "--chip-noise-uv", "100", "--chip-seed", "2")
    assert noisy.shunt_raw.std() == pytest.approx(10.0, rel=0.1)
    assert noisy.shunt_raw.tolist() != other.shunt_raw.tolist()


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        (b"", "record 0 is missing"),
        (_records(0, [0.1])[:-1], "record 1 is cut off"),
        (_records(0, [0.1]) + _records(_MS, []), "record 2 is not later than the one before"),
        (_records(0, [float("nan")]), "record 1 holds what is no number"),
    ],
)
def test_a_bad_replay_is_said(program: Path, tmp_path: Path, records: bytes, complaint: str) -> None:
    (tmp_path / "records").write_bytes(records)
    done = process.run([program, "--replay", tmp_path / "records"], timeout_s=LIMIT_S, check=False)
    assert done.returncode == 1
    assert complaint in done.stderr.decode()


def test_a_replay_of_no_file(program: Path, tmp_path: Path) -> None:
    done = process.run([program, "--replay", tmp_path / "absent"], timeout_s=LIMIT_S, check=False)
    assert done.returncode == 1
    assert "absent: No such file or directory" in done.stderr.decode()
