"""The wire format: every kind of loss, and whatever hypothesis finds. test_golden_frames.py has the golden vectors."""

from __future__ import annotations

import itertools
from typing import Any

import meter_wire as wire
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.frames import (
    Frame,
    FrameDecoder,
    MarkFrame,
    ReplyFrame,
    SamplesFrame,
)
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import MarkSource

_U32 = st.integers(0, 2**32 - 1)
_TIME = st.integers(0, 2**63 - 1)
# The three bits above the bus voltage are flags.
_VALUES = st.lists(st.tuples(st.integers(-(2**15), 2**15 - 1), st.integers(0, 2**13 - 1)), max_size=20)
_SAMPLES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "first_tick": _TIME,
        "first_time_us": _TIME,
        "energy_raw": st.integers(-(2**63), 2**63 - 1),
        "bus_total": _TIME,
        "missed_total": _U32,
        "flags": st.integers(0, 255),
        "values": _VALUES,
        "stream_id": _U32,
    }
)
_TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=16)
_I32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def _any_frame(draw: st.DrawFn) -> bytes:
    """A frame of any type that the meter sends, as it goes over the line."""
    seq, stream_id = draw(_U32), draw(_U32)
    kind = draw(st.sampled_from(["samples", "mark", "info", "reply"]))
    if kind == "samples":
        return wire.samples(seq, **draw(_SAMPLES))
    if kind == "mark":
        return wire.mark(
            seq, time_us=draw(_TIME), text=draw(_TEXT), source=draw(st.integers(0, 3)), stream_id=stream_id
        )
    if kind == "info":
        return wire.info(seq, stream_id=stream_id, shunt_offset_nv=draw(_I32), i2c_faults=draw(_U32))
    values = draw(st.tuples(_I32, _I32, _I32))
    return wire.reply(
        seq, request=draw(_U32), command=0x10, status=draw(st.integers(0, 9)), values=values, stream_id=stream_id
    )


_FRAMES = _any_frame()


def _decode(data: bytes) -> list[Frame]:
    return FrameDecoder().feed(b"\0" + data)


def _samples(seq: int, tick: int, values: list[tuple[int, int]], **changed: Any) -> bytes:
    fields: dict[str, Any] = {"energy_raw": 0, "bus_total": 0, "missed_total": 0, "flags": 0}
    fields |= {"first_time_us": tick * 1000} | changed
    return wire.samples(seq, first_tick=tick, values=values, **fields)


def _stream(frames: int, *, first_seq: int = 0) -> list[bytes]:
    """An info frame and then `frames` frames of 20 equal samples, as the meter sends them."""
    made = [wire.info(first_seq)]
    for number in range(frames):
        seq = (first_seq + 1 + number) % 2**32
        made.append(_samples(seq, 20 * number, [(2500, 1250)] * 20, energy_raw=20 * number * 2500 * 1250))
    return made


# ------------------------------------------------------------------------------------------------------ properties


@given(seq=_U32, fields=_SAMPLES)
def test_samples_round_trip(seq: int, fields: dict[str, Any]) -> None:
    (frame,) = _decode(wire.samples(seq, **fields))
    assert isinstance(frame, SamplesFrame)
    values = fields.pop("values")
    assert {name: getattr(frame, name) for name in fields} == fields
    assert list(zip(frame.shunt_raw.tolist(), frame.bus_raw.tolist(), strict=True)) == values
    assert frame.count == len(values)


@given(seq=_U32, time_us=_TIME, text=_TEXT)
def test_mark_round_trip(seq: int, time_us: int, text: str) -> None:
    assert _decode(wire.mark(seq, time_us=time_us, text=text)) == [MarkFrame(seq, time_us, text, stream_id=1)]


@given(seq=_U32, time_us=_TIME)
def test_an_edge_has_no_text(seq: int, time_us: int) -> None:
    rising = wire.mark(seq, time_us=time_us, text="", source=wire.RISING)
    assert _decode(rising) == [MarkFrame(seq, time_us, "", MarkSource.RISING, stream_id=1)]


@given(seq=_U32, request=_U32, bits=st.binary(min_size=14, max_size=14))
def test_reply_round_trip(seq: int, request: int, bits: bytes) -> None:
    values = [int.from_bytes(bits[i : i + 4], "little", signed=True) for i in (2, 6, 10)]
    reply = wire.reply(seq, request=request, command=bits[0], status=bits[1], values=values)
    assert _decode(reply) == [ReplyFrame(seq, request, bits[0], bits[1], (values[0], values[1], values[2]), 1)]


@given(data=st.binary(max_size=2000))
def test_garbage_never_raises_and_is_never_a_frame(data: bytes) -> None:
    assert FrameDecoder().feed(data) == []


@given(data=st.lists(st.binary(max_size=300), max_size=20))
def test_garbage_between_frames_costs_no_frame(data: list[bytes]) -> None:
    stream = b"".join(piece + b"\0" + frame for piece, frame in zip(data, _stream(len(data)), strict=False))
    decoder = FrameDecoder()
    assert len(decoder.feed(stream)) == len(data)
    assert decoder.counters.lost == 0


@given(whole=_FRAMES, data=st.data())
def test_a_damaged_frame_is_never_accepted(whole: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(whole) - 2))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    decoder = FrameDecoder()
    assert decoder.feed(b"\0" + bytes(damaged)) == []
    assert decoder.counters.damaged >= 1


@given(whole=_FRAMES, data=st.data())
def test_a_truncated_frame_is_never_accepted(whole: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(whole) - 2))
    assert _decode(whole[:cut] + b"\0") == []
    assert cut == 0 or _decode(whole[cut:]) == []


@given(frames=st.lists(_FRAMES, min_size=2, max_size=8), data=st.data())
def test_what_is_taken_out_of_a_stream_takes_whole_frames_with_it(frames: list[bytes], data: st.DataObject) -> None:
    """Also where the tail of one frame is joined to the head of another: nothing is made up."""
    stream = b"\0" + b"".join(frames)
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, len(stream))] * 2)))
    whole = [frame for part in frames for frame in FrameDecoder().feed(b"\0" + part)]
    for frame in FrameDecoder().feed(stream[:low] + stream[high:]):
        assert frame in whole


@given(frames=st.lists(_FRAMES, max_size=8), noise=st.binary(max_size=600), data=st.data())
def test_noise_within_a_stream_makes_no_frame(frames: list[bytes], noise: bytes, data: st.DataObject) -> None:
    stream = b"\0" + b"".join(frames)
    at = data.draw(st.integers(0, len(stream)))
    whole = [frame for part in frames for frame in FrameDecoder().feed(b"\0" + part)]
    decoder = FrameDecoder()
    found = decoder.feed(stream[:at] + noise + stream[at:])
    assert all(frame in whole for frame in found)
    assert decoder.counters.unknown == 0


@given(cuts=st.lists(st.integers(0, 1300), max_size=30), garbage=st.binary(max_size=400))
def test_any_split_gives_the_same_frames(cuts: list[int], garbage: bytes) -> None:
    stream = garbage + b"\0" + b"".join([*_stream(9), wire.mark(10, time_us=5, text="S1")])
    at_once = FrameDecoder()
    expected = at_once.feed(stream)
    split = FrameDecoder()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    frames = [frame for low, high in itertools.pairwise(edges) for frame in split.feed(stream[low:high])]
    assert frames == expected
    assert len(frames) == 11
    assert split.counters == at_once.counters


@given(
    first_seq=st.sampled_from([0, 1, 2**31 - 5, 2**32 - 7]),
    fates=st.lists(st.sampled_from(["sent", "sent", "lost", "twice", "late"]), min_size=1, max_size=40),
)
def test_every_loss_is_counted(first_seq: int, fates: list[str]) -> None:
    """Whatever becomes of the frames between the first and the last: samples received and lost make up the whole."""
    fates = ["sent", *fates, "sent"]
    frames = _stream(len(fates), first_seq=first_seq)
    sent, waiting = [frames[0]], list[bytes]()
    for fate, frame in zip(fates, frames[1:], strict=True):
        sent += {"sent": [frame], "twice": [frame, frame], "lost": [], "late": []}[fate]
        if fate == "late":
            waiting.append(frame)
        elif waiting and fate == "sent":
            sent.append(waiting.pop())
    decoder = FrameDecoder()
    decoded = decoder.feed(b"".join(sent))
    counters = decoder.counters
    assert counters.lost == fates.count("lost") + len(waiting)
    assert counters.duplicates == fates.count("twice")
    assert counters.reordered == fates.count("late") - len(waiting)
    assert counters.frames == len(decoded) == len(frames) - counters.lost
    builder = TraceBuilder()
    builder.add(decoded)
    trace = builder.build()
    assert trace.lost == 20 * counters.lost
    assert trace.missed == 0
    assert trace.counts.expected == 20 * len(fates)
    assert np.all(np.diff(trace.ticks) > 0)
    assert np.all(np.diff(trace.checkpoint_ticks) > 0)


# --------------------------------------------------------------------------------------------------------- decoder


def test_another_protocol_is_refused() -> None:
    for protocol in (2, 4):
        with pytest.raises(MeterError, match=rf"speaks protocol {protocol}; .* supports protocol 3"):
            FrameDecoder().feed(wire.frame(wire.INFO, 0, bytes(49), protocol=protocol))


def test_a_later_firmware_may_say_more_of_itself() -> None:
    longer = wire.info(0, marks_damaged=5, stream_id=9)
    (shorter,) = _decode(longer)
    content = FrameDecoder()
    body = wire.uncobs(longer[:-1])[6:-4] + b"more"
    assert content.feed(wire.frame(wire.INFO, 0, body)) == [shorter]


def test_commands_that_come_back_are_passed_over() -> None:
    """Where a line echoes: their numbers are the host's."""
    decoder = FrameDecoder()
    sent = [wire.frame(0x10, 0xCAFE0001, b""), wire.frame(0x1C, 5, b"S1")]
    decoder.feed(b"".join([wire.info(0), *sent, wire.info(1)]))
    assert (decoder.counters.frames, decoder.counters.unknown, decoder.counters.lost) == (2, 2, 0)


def test_an_unknown_type_is_counted_and_passed_over() -> None:
    decoder = FrameDecoder()
    new = wire.frame(9, 0, b"\1\0\0\0new")
    assert decoder.feed(new + wire.mark(1, time_us=1, text="S1")) == [MarkFrame(1, 1, "S1", stream_id=1)]
    assert (decoder.counters.unknown, decoder.counters.lost, decoder.counters.damaged) == (1, 0, 0)


@pytest.mark.parametrize(
    "frame",
    [
        wire.frame(wire.SAMPLES, 0, b""),
        wire.frame(wire.SAMPLES, 0, bytes(3)),
        wire.frame(9, 0, bytes(3)),
        wire.frame(wire.SAMPLES, 0, bytes(41) + b"\x01" + bytes(3)),
        wire.frame(wire.SAMPLES, 0, bytes(41) + b"\x15" + bytes(84)),
        wire.frame(wire.SAMPLES, 0, bytes(4) + b"\xff" * 16 + bytes(22)),
        wire.frame(wire.SAMPLES, 0, bytes(35) + b"\x80" + bytes(6)),
        wire.frame(wire.MARK, 0, bytes(14) + b"\x02S"),
        wire.frame(wire.MARK, 0, bytes(14) + b"\x11" + b"S" * 17),
        wire.frame(wire.MARK, 0, bytes(14) + b"\x01\xff"),
        wire.frame(wire.MARK, 0, bytes(14) + b"\x01\x1b"),
        wire.frame(wire.MARK, 0, bytes(12) + b"\x04\0\x01S"),
        wire.frame(wire.INFO, 0, b"\x01" * 101),
        wire.frame(wire.REPLY, 0, bytes(21)),
        wire.info(0, rate_hz=0),
        wire.info(0, shunt_uohm=0),
    ],
    ids=[
        "no head",
        "no stream",
        "unknown, no stream",
        "short",
        "21 samples",
        "time below 0",
        "bus below 0",
        "mark short",
        "mark long",
        "not ascii",
        "not printable",
        "mark from nowhere",
        "info short",
        "reply short",
        "0 Hz",
        "0 Ohm",
    ],
)
def test_a_frame_that_contradicts_itself_is_damaged(frame: bytes) -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"\0" + frame) == []
    assert decoder.counters.damaged == 1


def test_the_end_of_a_frame_that_began_before_is_not_damage() -> None:
    decoder = FrameDecoder()
    assert len(decoder.feed(wire.info(5)[9:] + wire.info(6))) == 1
    assert decoder.counters.damaged == 0
    decoder.feed(wire.info(7)[9:])
    assert decoder.counters.damaged == 1


def test_a_line_without_delimiters_takes_no_memory() -> None:
    decoder = FrameDecoder()
    for _ in range(1000):
        decoder.feed(b"U" * 4096)
    assert len(decoder._partial) < 300
    assert len(decoder.feed(b"\0" + wire.info(0))) == 1


def test_sequence_numbers_wrap() -> None:
    decoder = FrameDecoder()
    frames = _stream(6, first_seq=2**32 - 3)
    decoder.feed(b"".join(frames[:2] + frames[4:]))
    assert (decoder.counters.frames, decoder.counters.lost) == (5, 2)
