"""The golden stream, to which any decoder can be held: the host makes of it what docs/meter-protocol.md says."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import golden_stream
import numpy as np
import pytest

from fsjoule.meter.protocol.frames import Frame, FrameDecoder, InfoFrame, MarkFrame, SamplesFrame
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import CurrentMonitor, MarkSource

_SOURCES = [MarkSource.LINE, MarkSource.RISING, MarkSource.FALLING, MarkSource.HOST]
_DATA = golden_stream.STREAM_FILE.read_bytes()
_EXPECTED: dict[str, Any] = json.loads(golden_stream.EXPECTED_FILE.read_text())


def test_the_files_are_what_the_script_writes() -> None:
    data, document = golden_stream.golden()
    assert data == _DATA
    assert golden_stream.EXPECTED_FILE.read_text() == golden_stream.written(document)


def _decoded(chunk: int) -> tuple[list[Frame], FrameDecoder]:
    decoder = FrameDecoder()
    return [each for at in range(0, len(_DATA), chunk) for each in decoder.feed(_DATA[at : at + chunk])], decoder


@pytest.mark.parametrize("chunk", [1, 7, 4096, 1 << 20])
def test_the_host_takes_the_same_frames(chunk: int) -> None:
    frames, decoder = _decoded(chunk)
    assert [(each.seq, _stream(each)) for each in frames] == [
        (each["seq"], each["stream_id"]) for each in _EXPECTED["frames"]
    ]
    for frame, expected in zip(frames, _EXPECTED["frames"], strict=True):
        _check(frame, expected)
    counters = asdict(decoder.counters)
    assert {name: counters[name] for name in _EXPECTED["counters"]} == _EXPECTED["counters"]
    assert counters["frames"] == len(frames)


def _stream(frame: Frame) -> int | None:
    return frame.status.stream_id if isinstance(frame, InfoFrame) else frame.stream_id


def _check(frame: Frame, expected: dict[str, Any]) -> None:
    if isinstance(frame, SamplesFrame):
        assert (frame.shunt_raw.tolist(), frame.bus_raw.tolist()) == (expected["shunt"], expected["bus"])
        names = ("first_tick", "first_time_us", "energy_raw", "bus_total", "missed_total", "flags")
        assert {name: getattr(frame, name) for name in names} == {name: expected[name] for name in names}
    elif isinstance(frame, MarkFrame):
        assert (frame.time_us, frame.text) == (expected["time_us"], expected["text"])
        assert frame.source is _SOURCES[expected["source"]]
        assert (frame.checked, frame.damaged) == (expected["flags"] == 1, expected["flags"] == 2)
    elif isinstance(frame, InfoFrame):
        told = asdict(frame.info) | asdict(frame.info.calibration) | asdict(frame.status)
        told |= asdict(frame.status.inputs)
        told["chip"] = list(CurrentMonitor).index(frame.info.chip)
        told |= {"shunt_unit_pv": frame.info.shunt_lsb_uv * 1e6, "bus_unit_pv": frame.info.bus_lsb_mv * 1e9}
        names = [name for name in expected if name not in ("type", "seq", "flags", "reset_cause")]
        assert {name: told[name] for name in names} == {name: expected[name] for name in names}
    else:
        assert (frame.request, frame.status, frame.values) == (
            expected["request"],
            expected["status"],
            tuple(expected["values"]),
        )


@pytest.mark.parametrize("expected", _EXPECTED["streams"], ids=lambda each: f"{each['stream_id']:x}")
def test_the_host_makes_the_same_trace(expected: dict[str, Any]) -> None:
    frames = [each for each in _decoded(4096)[0] if _stream(each) == expected["stream_id"]]
    builder = TraceBuilder()
    builder.add(frames)
    trace = builder.build()
    assert (trace.info.serial_number, trace.info.rate_hz) == (expected["serial_number"], expected["rate_hz"])
    assert (len(trace.ticks), trace.missed, trace.lost) == (expected["received"], expected["missed"], expected["lost"])
    # The last frame's sums, and its own samples.
    raw, bus = trace.tallies
    own = trace.ticks >= trace.checkpoint_ticks[-1]
    told = [
        int(sums[-1] - sums[0]) + int(of[own].sum())
        for sums, of in zip(trace.checkpoint_tallies, (raw, bus), strict=True)
    ]
    joules = float(trace.tallied_w(*(np.array([each]) for each in told))[0]) / trace.info.rate_hz
    assert joules == pytest.approx(expected["energy_j"], rel=1e-12)


def test_a_recording_that_hears_all_of_it_is_of_the_first_stream() -> None:
    builder = TraceBuilder()
    builder.add(_decoded(4096)[0])
    trace = builder.build()
    assert len(trace.ticks) == _EXPECTED["streams"][0]["received"]
    assert [mark.text for mark in trace.marks] == ["S1", "phase 2", "", ""]
    assert "1 mark damaged on the mark line: '~E1~214'" in trace.faults
    assert builder.ended
