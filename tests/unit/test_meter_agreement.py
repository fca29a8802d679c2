"""Frames with a right checksum and wrong numbers, and frames that do not arrive: neither passes without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from meter_lines import MeterLine, served

from fsjoule.meter.links.receiver import Agreement
from fsjoule.meter.protocol.frames import Frame, FrameDecoder, MarkFrame, SamplesFrame
from fsjoule.meter.protocol.sequence import StreamCounters
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.store.traces import read_trace

_TWENTY = [2500] * 20


def _agreed(frames: list[bytes]) -> tuple[list[Frame], int]:
    """The frames that are taken, and how many count as damaged."""
    decoder = FrameDecoder()
    agreement = Agreement(decoder.counters)
    return agreement.agreed(decoder.feed(b"".join(frames))), decoder.counters.damaged


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_tick": 2**63 - 9},
        {"first_time_us": 2**63 - 9},
        {"first_time_us": 5_140_000},
        {"first_tick": 5061},
        {"first_tick": 5059},
        {"energy_raw": 1},
        {"energy_raw": -(2**63)},
        {"bus_total": 0},
        {"bus_total": 2**62},
        {"missed_total": 30},
    ],
)
def test_a_frame_that_contradicts_the_others_counts_as_damaged(wrong: dict[str, Any]) -> None:
    line = MeterLine()
    line.info()
    for number in range(10):
        line.samples(_TWENTY, **(wrong if number == 3 else {}))
    frames, damaged = _agreed(line.frames)
    assert (len(frames), damaged) == (10, 1)
    builder = TraceBuilder()
    builder.add(frames)
    trace = builder.build()
    assert (trace.lost, len(trace.ticks)) == (20, 180)
    assert trace.checkpoint_raw[-1] - trace.checkpoint_raw[0] == 180 * 2500 * 1250


def test_a_first_frame_that_is_wrong_does_not_make_the_others_wrong() -> None:
    line = MeterLine()
    line.info()
    line.samples(_TWENTY, first_time_us=17)
    for _ in range(9):
        line.samples(_TWENTY)
    frames, damaged = _agreed(line.frames)
    assert ([each.first_tick for each in frames if isinstance(each, SamplesFrame)], damaged) == (
        [5000, *range(5040, 5200, 20)],
        1,
    )


def test_losses_missed_ticks_late_frames_and_new_streams_agree() -> None:
    line = MeterLine()
    line.info()
    for _ in range(30):
        line.samples(_TWENTY)
    del line.frames[10:15]
    line.frames[20], line.frames[21] = line.frames[21], line.frames[20]
    line.tick += 7
    line.samples(_TWENTY, missed_total=7)
    other = MeterLine(tick=0, seq=line.seq, sums=(0, 0), stream_id=2)
    other.info(rate_hz=2000)
    other.samples(_TWENTY)
    other.samples(_TWENTY, first_time_us=10_000)
    frames, damaged = _agreed(line.frames + other.frames)
    assert (len(frames), damaged) == (len(line.frames) + len(other.frames), 0)


def test_a_mark_in_a_thousand_years_is_damaged() -> None:
    line = MeterLine()
    line.info()
    line.mark("S1", time_us=2**63 - 1)
    line.mark("E1")
    frames, damaged = _agreed(line.frames)
    assert ([each.text for each in frames if isinstance(each, MarkFrame)], damaged) == (["E1"], 1)


def _bad_line() -> Iterator[bytes]:
    """No sample is lost, and every second mark: damaged or not there at all. The others come twice."""
    line = MeterLine()
    yield line.info()
    for number in count():
        mark = line.mark(f"S{number}")
        yield (mark[:9] + b"U" + mark[10:], mark + mark, b"", mark)[number % 4]
        yield line.samples(_TWENTY)


def test_losses_of_a_line_are_counted_and_put_into_words() -> None:
    decoder = FrameDecoder()
    bad = _bad_line()
    decoder.feed(b"".join(islice(bad, 9)))
    before = replace(decoder.counters)
    decoder.feed(b"".join(islice(bad, 16)))
    assert before.losses == "2 frames of the meter lost, 1 damaged, 1 came twice: marks may be missing"
    assert decoder.counters.since(before).losses == (
        "4 frames of the meter lost, 2 damaged, 2 came twice: marks may be missing"
    )
    assert StreamCounters(frames=7, duplicates=3).losses == ""


def test_a_recording_whose_marks_are_lost_says_so(fsjoule: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    with served(_bad_line()) as address:
        done = fsjoule("meter", "record", "--meter", address, "--seconds", "0.4", "--json", "-o", path)
    document = done.document
    assert (done.code, document["lost"]) == (4, 0)
    assert min(document["line"][each] for each in ("lost", "damaged", "duplicates")) > 0
    (said,) = document["faults"]
    assert read_trace(path).faults == (said,)
    assert f"the recording is not whole: {said}" in done.err


def test_contradictory_frames_add_no_joules_to_a_recording(fsjoule: CommandLine, tmp_path: Path) -> None:
    def frames() -> Iterator[bytes]:
        line = MeterLine()
        yield line.info()
        for number in count():
            yield line.samples(_TWENTY, **({"energy_raw": 5 * 10**9} if number % 4 == 2 else {}))

    with served(frames()) as address:
        done = fsjoule("meter", "record", "--meter", address, "--seconds", "0.4", "--json", "-o", tmp_path / "t.csv")
    document = done.document
    damaged = document["line"]["damaged"]
    assert damaged > 0
    # The recording may begin behind such a frame, or end with one.
    assert abs(document["lost"] - 20 * damaged) <= 20
    assert document["mean_watts"] == pytest.approx(1.25)


def test_a_watch_says_that_frames_are_lost(fsjoule: CommandLine) -> None:
    with served(_bad_line()) as address:
        done = fsjoule("meter", "watch", "--meter", address, "--seconds", "0.4", "--json")
    last = json.loads(done.out.splitlines()[-1])
    assert last["line"]["lost"] > 0
    assert last["trouble"].endswith("marks may be missing")
