"""Frames become traces: what is missing is counted, and streams are kept apart."""

from __future__ import annotations

from typing import Any

import meter_wire as wire
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.frames import (
    FLAG_CLIPPED,
    FLAG_EVENTS_LOST,
    FLAG_I2C_FAULT,
    FLAG_MARK_ERROR,
    Frame,
    FrameDecoder,
    InfoFrame,
)
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import Ina219Trace, Mark, MarkSource


def _decode(data: bytes) -> list[Frame]:
    return FrameDecoder().feed(data)


def _samples(seq: int, tick: int, values: list[tuple[int, int]], **changed: Any) -> bytes:
    fields: dict[str, Any] = {"energy_raw": 0, "missed_total": 0, "flags": 0, "first_time_us": tick * 1000} | changed
    return wire.samples(seq, first_tick=tick, values=values, **fields)


def _trace(data: bytes) -> Ina219Trace:
    builder = TraceBuilder()
    builder.add(_decode(data))
    return builder.build()


def test_a_trace_holds_what_was_sent() -> None:
    data = wire.info(0) + _samples(1, 100, [(10, 1000), (-20, 1001)], energy_raw=5)
    data += wire.mark(2, time_us=101_500, text="S1", source=wire.HOST)
    data += _samples(3, 102, [(30, 1002)], energy_raw=5 + 10_000 - 20_020, bus_total=2001)
    trace = _trace(data)
    assert trace.ticks.tolist() == [100, 101, 102]
    assert trace.times_us.tolist() == [100_000, 101_000, 102_000]
    assert trace.shunt_raw.tolist() == [10, -20, 30]
    assert trace.bus_raw.tolist() == [1000, 1001, 1002]
    assert trace.checkpoint_ticks.tolist() == [100, 102]
    assert trace.checkpoint_raw.tolist() == [5, -10_015]
    assert trace.checkpoint_bus.tolist() == [0, 2001]
    assert trace.checkpoint_missed.tolist() == [0, 0]
    assert trace.marks == (Mark(101_500, "S1", MarkSource.HOST),)
    assert (trace.missed, trace.lost, trace.faults) == (0, 0, ())
    assert trace.power_w.tolist() == pytest.approx([0.004, -0.008008, 0.012024])
    assert (trace.shunt_raw.dtype, trace.bus_raw.dtype, trace.ticks.dtype) == (np.int32, np.int32, np.int64)


def test_missed_and_lost_ticks_are_told_apart() -> None:
    values = [(1, 1)] * 10
    data = wire.info(0) + _samples(1, 0, values, missed_total=50)
    data += _samples(2, 15, values, missed_total=55)  # 5 ticks missed by the meter
    data += _samples(4, 35, values, missed_total=55)  # frame 3 with 10 samples did not arrive
    data += _samples(5, 65, [], missed_total=75, flags=FLAG_I2C_FAULT)  # 20 ticks missed, and none sampled since
    trace = _trace(data)
    assert (trace.missed, trace.lost, len(trace.ticks)) == (25, 10, 30)
    assert trace.counts.expected == 65
    assert trace.faults == ("the chip did not answer (in 1 of 4 frames)",)


def test_missed_ticks_wrap() -> None:
    data = wire.info(0) + _samples(1, 0, [(1, 1)], missed_total=2**32 - 1) + _samples(2, 3, [(1, 1)], missed_total=1)
    assert (_trace(data).missed, _trace(data).lost) == (2, 0)


def test_a_rate_whose_period_is_no_whole_number_of_microseconds() -> None:
    trace = _trace(wire.info(0, rate_hz=300) + _samples(1, 0, [(1, 1)] * 4))
    assert trace.times_us.tolist() == [0, 3333, 6666, 10000]


def test_the_calibration_is_applied() -> None:
    info = wire.info(0, shunt_offset_nv=50_000, current_gain_ppm=2000, bus_gain_ppm=-1000)
    trace = _trace(info + _samples(1, 0, [(105, 1000), (5, 1000)]))
    assert trace.power_w.tolist() == pytest.approx([0.04 * 1.002 * 0.999, 0.0])


def _stream(seq: int, stream_id: int, *, time_us: int, frames: int = 3, shunt: int = 1) -> list[bytes]:
    """An info frame, `frames` frames of ten samples, a mark, and the same again."""
    of_stream: dict[str, Any] = {"stream_id": stream_id}

    def samples(seq: int, tick: int) -> bytes:
        return _samples(seq, tick, [(shunt, 1)] * 10, first_time_us=time_us + 1000 * tick, **of_stream)

    made = [wire.info(seq, **of_stream)]
    made += [samples(seq + 1 + n, 10 * n) for n in range(frames)]
    made.append(wire.mark(seq + 1 + frames, time_us=time_us + 10_000 * frames, text=f"M{stream_id}", **of_stream))
    made.append(wire.info(seq + 2 + frames, **of_stream))
    made.append(samples(seq + 3 + frames, 10 * frames))
    return made


_OVER = "the meter began another stream (a new start, or new settings); everything after that is left out"


@pytest.mark.parametrize("lost", [(), (7,), (7, 8), (6, 7)], ids=["nothing", "info", "info, samples", "samples, info"])
@pytest.mark.parametrize(("seq", "second"), [(7, 2), (0, 0x80000000)], ids=["new settings", "new start"])
def test_another_stream_is_left_out_and_said(seq: int, second: int, lost: tuple[int, ...]) -> None:
    """Also when the info frame that begins it is lost: the next samples give it away."""
    both = _stream(0, 1, time_us=1_000_000)
    both += _stream(seq, second, time_us=2_000_000 if seq else 5_000, frames=7, shunt=9)
    builder = TraceBuilder()
    builder.add(_decode(b"".join(frame for at, frame in enumerate(both) if at not in lost)))
    trace = builder.build()
    assert trace.ticks.tolist() == list(range(30 if 6 in lost else 40))
    assert set(trace.shunt_raw.tolist()) == {1}
    assert [mark.text for mark in trace.marks] == ["M1"]
    assert trace.faults == (_OVER,)
    assert builder.ended


def test_an_info_frame_that_was_lost_comes_again() -> None:
    """Whoever listens with the info of the stream before gets the right one, as soon as there is one."""
    (before,) = _decode(wire.info(0, stream_id=1, current_gain_ppm=50_000))
    assert isinstance(before, InfoFrame)
    builder = TraceBuilder(before)
    now: dict[str, Any] = {"stream_id": 2}
    builder.add(_decode(_samples(2, 0, [(1, 1)] * 10, **now)))
    builder.add(_decode(wire.info(3, **now) + wire.mark(4, time_us=9_500, text="M", **now)))
    builder.add(_decode(_samples(5, 10, [(1, 1)] * 10, **now)))
    trace = builder.build()
    assert (len(trace.ticks), len(trace.marks), trace.faults) == (20, 1, ())
    assert trace.info.calibration.current_gain_ppm == 0


def test_the_meter_that_is_recorded_must_say_so_itself() -> None:
    """What was known before may be of a meter that is there no more, and two may choose one number of their streams."""
    (before,) = _decode(wire.info(0, stream_id=1, serial_number="A"))
    assert isinstance(before, InfoFrame)
    for now, taken in (("A", 20), ("B", 20)):
        builder = TraceBuilder(before)
        builder.add(_decode(_samples(2, 0, [(1, 1)] * 10)))
        assert not builder.identified
        info = wire.info(3, stream_id=1, serial_number=now)
        builder.add(_decode(info + _samples(4, 10, [(1, 1)] * 10)))
        assert builder.identified
        trace = builder.build()
        assert (trace.info.serial_number, len(trace.ticks)) == (now, taken)


def test_marks_of_a_meter_that_began_anew_are_not_the_traces() -> None:
    decoder, builder = FrameDecoder(), TraceBuilder()
    builder.add(decoder.feed(b"".join(_stream(100, 1, time_us=60_000_000))))
    now: dict[str, Any] = {"stream_id": 0x80000000}
    anew = [wire.mark(3, time_us=9_000, text="E1", **now), _samples(4, 10, [(9, 9)] * 10, first_time_us=10_000, **now)]
    anew += [wire.info(5, **now), wire.mark(6, time_us=20_000, text="E1", **now)]
    anew += [_samples(7, 20, [(9, 9)] * 10, first_time_us=20_000, **now)]
    for frame in anew:
        builder.add(decoder.feed(frame))
    trace = builder.build()
    assert [mark.text for mark in trace.marks] == ["M1"]
    assert set(trace.shunt_raw.tolist()) == {1}
    assert trace.faults == (_OVER,)


def _collected(*frames: bytes, info: bytes | None = None) -> TraceBuilder:
    known = None if info is None else _decode(info)[0]
    assert known is None or isinstance(known, InfoFrame)
    builder = TraceBuilder(known)
    builder.add(_decode(b"".join(frames)))
    return builder


def test_the_end_of_the_stream_before_is_none_of_ours() -> None:
    """Who listens from a stream's info on may still hear the stream before, and then the line goes on with ours."""
    late = [_samples(0, 500, [(9, 9)], stream_id=1), wire.mark(1, time_us=500_000, text="old", stream_id=1)]
    ours = [_samples(3, 0, [(1, 1)], stream_id=2), wire.mark(4, time_us=1000, text="new", stream_id=2)]
    builder = _collected(*late, *ours, info=wire.info(2, stream_id=2))
    trace = builder.build()
    assert (trace.shunt_raw.tolist(), [mark.text for mark in trace.marks]) == ([1], ["new"])
    assert not builder.ended


def test_samples_that_came_before_their_info_are_kept() -> None:
    """The meter restarted and its first info frame was lost: its number tells to what the samples belong."""
    builder = _collected(
        *(_samples(seq, seq - 1, [(seq, 1)], stream_id=0x80000000) for seq in range(1, 50)),
        wire.info(50, stream_id=0x80000000, shunt_uohm=50_000),
        info=wire.info(900, stream_id=1),
    )
    trace = builder.build()
    assert trace.shunt_raw.tolist() == list(range(1, 50))
    assert trace.info.shunt_uohm == 50_000
    assert (builder.identified, trace.faults) == (True, ())


def test_a_frame_that_comes_late_after_the_end_of_its_stream_is_kept() -> None:
    frames = [wire.info(0), _samples(1, 0, [(1, 1)]), _samples(2, 1, [(2, 1)]), _samples(3, 2, [(3, 1)])]
    builder = _collected(frames[0], frames[1], frames[3], wire.info(4, stream_id=2), frames[2])
    assert builder.build().shunt_raw.tolist() == [1, 2, 3]
    assert builder.ended


def test_flags_of_a_sample_are_not_its_voltage() -> None:
    bus = [1250, 0x8000 | 4000, 0x4000 | 1250, 0xE000 | 1]
    trace = _collected(wire.info(0), _samples(1, 0, [(1, each) for each in bus])).build()
    assert trace.bus_raw.tolist() == [1250, 4000, 1250, 1]
    assert trace.bus_raw.dtype == np.int32


def test_damaged_marks_are_told_and_no_marks() -> None:
    texts = ["~S7~28", "S7", "~E7~1", "~E8~2"]
    damaged = [wire.mark(n, time_us=n, text=text, flags=wire.BROKEN) for n, text in enumerate(texts, 1)]
    good = wire.mark(9, time_us=9, text="S7", flags=wire.CHECKED)
    trace = _collected(wire.info(0), damaged[0], good, _samples(10, 0, [(1, 1)])).build()
    assert trace.marks == (Mark(9, "S7", MarkSource.LINE, checked=True),)
    assert trace.faults == ("1 mark damaged on the mark line: '~S7~28'",)
    trace = _collected(wire.info(0), *damaged).build()
    assert trace.faults == ("4 marks damaged on the mark line: '~S7~28', 'S7', '~E7~1', ...",)


def test_what_was_lost_before_the_meter_is_told() -> None:
    flags = [FLAG_EVENTS_LOST, FLAG_MARK_ERROR, FLAG_EVENTS_LOST]
    frames = [_samples(1 + n, n, [(1, 1)], flags=each) for n, each in enumerate(flags)]
    assert _collected(wire.info(0), *frames).build().faults == (
        "bytes or edges were lost because the meter's queue was full (in 2 of 3 frames)",
        "the mark line's UART had errors (in 1 of 3 frames)",
    )


@given(st.lists(st.integers(0, 3), max_size=12), st.sets(st.integers(0, 39)))
def test_pieces_make_up_the_whole(pieces: list[int], lost: set[int]) -> None:
    values = [(7, 3)] * 10
    frames = [_samples(n, 12 * n, values, missed_total=2 * n, flags=FLAG_CLIPPED if n == 5 else 0) for n in range(40)]
    arrived = [frame for n, frame in enumerate(frames) if n not in lost]
    whole, piecewise = TraceBuilder(), TraceBuilder()
    whole.add(_decode(wire.info(0)))
    piecewise.add(_decode(wire.info(0)))
    whole.add(_decode(b"".join(arrived)))
    taken: list[Ina219Trace] = []
    for size in [*pieces, 40]:
        piecewise.add(_decode(b"".join(arrived[:size])))
        del arrived[:size]
        taken.append(piecewise.take())
    trace = whole.build()
    assert np.concatenate([piece.ticks for piece in taken]).tolist() == trace.ticks.tolist()
    assert np.concatenate([piece.checkpoint_ticks for piece in taken]).tolist() == trace.checkpoint_ticks.tolist()
    assert (sum(piece.missed for piece in taken), sum(piece.lost for piece in taken)) == (trace.missed, trace.lost)
    assert taken[-1].faults == trace.faults
    assert len(piecewise.build().ticks) == 0


def test_samples_without_an_info_frame_have_no_unit() -> None:
    builder = TraceBuilder()
    builder.add(_decode(_samples(1, 0, [(1, 1)])))
    with pytest.raises(MeterError, match="no info frame"):
        builder.build()
    (info,) = _decode(wire.info(0))
    assert isinstance(info, InfoFrame)
    builder = TraceBuilder(info)
    builder.add(_decode(_samples(1, 0, [(1, 1)])))
    assert len(builder.build().ticks) == 1


def test_an_empty_trace() -> None:
    trace = _trace(wire.info(0))
    assert len(trace.ticks) == len(trace.checkpoint_ticks) == 0
    assert trace.counts.expected == 0
