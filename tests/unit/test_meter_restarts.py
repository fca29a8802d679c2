"""A meter that restarts counts its frames from 0 again: no good frame is dropped, and none is taken twice."""

from __future__ import annotations

import meter_wire as wire
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meter_line import compare

from fsjoule.meter.protocol.frames import FrameDecoder, InfoFrame

_FIRST, _SECOND = 0x12345678, 0xFEDCBA98


def _equal_samples(seq: int, stream_id: int) -> bytes:
    """The frame with this number after a start, at a load that never changes: equal in every start."""
    return wire.samples(
        seq,
        first_tick=20 * seq,
        first_time_us=20_000 * seq,
        energy_raw=20 * seq,
        missed_total=0,
        flags=0,
        values=[(1, 1)] * 20,
        stream_id=stream_id,
    )


def test_a_restart_whose_first_info_frame_is_lost_costs_no_frame_that_is_equal() -> None:
    decoder = FrameDecoder()
    decoder.feed(wire.info(0, stream_id=_FIRST))
    decoder.feed(b"".join(_equal_samples(seq, _FIRST) for seq in range(1, 200)))
    before = decoder.counters.frames
    decoder.feed(b"".join(_equal_samples(seq, _SECOND) for seq in range(1, 50)))
    decoder.feed(wire.info(50, stream_id=_SECOND))
    assert (decoder.counters.frames - before, decoder.counters.duplicates) == (50, 0)


def test_a_restart_of_the_meter_is_not_loss() -> None:
    decoder = FrameDecoder()
    decoder.feed(wire.info(1000, stream_id=_FIRST) + wire.mark(1001, time_us=1, text="S1", stream_id=_FIRST))
    frames = decoder.feed(wire.info(0, stream_id=_SECOND) + wire.mark(1, time_us=1, text="S1", stream_id=_SECOND))
    assert len(frames) == 2
    counters = decoder.counters
    assert (counters.streams, counters.lost, counters.duplicates) == (1, 0, 0)


@pytest.mark.parametrize("before", [3, 100_000])
def test_what_is_lost_at_a_start_is_counted(before: int) -> None:
    """Also when the new start's numbers are higher than those that came before."""
    decoder = FrameDecoder()
    decoder.feed(wire.info(before, stream_id=_FIRST))
    decoder.feed(wire.info(7, stream_id=_SECOND))
    assert (decoder.counters.frames, decoder.counters.lost, decoder.counters.streams) == (2, 7, 1)
    # Another meter that has run for long was not heard from its start.
    decoder.feed(wire.info(100_000, stream_id=5))
    assert decoder.counters.lost == 7


def test_frames_change_places_over_a_restart() -> None:
    """The first of the new start may come before the last of the old one, and after the next of its own."""
    decoder = FrameDecoder()
    old = [_equal_samples(seq, _FIRST) for seq in range(4)]
    new = [_equal_samples(seq, _SECOND) for seq in range(4)]
    frames = decoder.feed(b"".join([*old[:2], new[1], old[3], new[0], old[2], new[3], new[2]]))
    assert len(frames) == 8
    counters = decoder.counters
    assert (counters.lost, counters.duplicates, counters.reordered) == (0, 0, 3)
    assert decoder.feed(old[2] + new[0] + new[3]) == []
    assert counters.duplicates == 3


def test_a_late_frame_of_a_power_up_before_the_first_one_heard_changes_nothing() -> None:
    decoder = FrameDecoder()
    old, new = [_equal_samples(seq, _FIRST) for seq in range(2)], _equal_samples(0, _SECOND)
    assert len(decoder.feed(old[0] + _equal_samples(0, 5) + old[1] + new)) == 4
    assert decoder.feed(old[1] + old[0] + new) == []
    assert (decoder.counters.lost, decoder.counters.duplicates) == (0, 3)


def test_frames_that_come_late_at_the_beginning_are_taken() -> None:
    decoder = FrameDecoder()
    frames = [_equal_samples(seq, _FIRST) for seq in range(100, 104)]
    assert len(decoder.feed(b"".join([frames[1], frames[0], frames[2], frames[0], frames[3]]))) == 4
    assert (decoder.counters.lost, decoder.counters.duplicates) == (0, 1)


def test_a_start_whose_random_number_is_near_is_told_by_its_frames() -> None:
    """Once in some million starts."""
    decoder = FrameDecoder()
    decoder.feed(b"".join(_equal_samples(seq, 7) for seq in range(10)))
    assert len(decoder.feed(b"".join(_equal_samples(seq, 9) for seq in range(2, 10)))) == 8
    assert (decoder.counters.lost, decoder.counters.duplicates) == (2, 0)


def test_what_is_lost_between_two_streams_is_counted() -> None:
    decoder = FrameDecoder()
    decoder.feed(wire.info(10, stream_id=1) + wire.info(14, stream_id=2))
    assert (decoder.counters.streams, decoder.counters.lost) == (1, 3)


def test_a_late_info_frame_of_the_stream_before_is_no_restart() -> None:
    decoder = FrameDecoder()
    frames = [wire.info(n, stream_id=1 + n // 3) for n in range(6)]
    late = [*frames[:2], frames[3], frames[2], frames[1], *frames[4:]]
    assert [frame.seq for frame in decoder.feed(b"".join(late))] == [0, 1, 3, 2, 4, 5]
    counters = decoder.counters
    assert (counters.streams, counters.lost, counters.reordered, counters.duplicates) == (1, 0, 1, 1)


def test_numbers_of_streams_wrap() -> None:
    decoder = FrameDecoder()
    frames = decoder.feed(b"".join(wire.info(n, stream_id=(0xFFFFFFFE + n) % 2**32) for n in range(4)))
    assert [frame.status.stream_id for frame in frames if isinstance(frame, InfoFrame)] == [
        0xFFFFFFFE,
        0xFFFFFFFF,
        0,
        1,
    ]
    assert (decoder.counters.streams, decoder.counters.lost) == (3, 0)


@given(
    starts=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    fates=st.lists(st.sampled_from(["sent", "sent", "lost", "twice", "swapped"]), min_size=1, max_size=60),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_good_frame_is_dropped_and_none_is_taken_twice(starts: list[int], fates: list[str], seed: int) -> None:
    """Restarts, losses, duplicates, and neighbours that change places, over restarts, too."""
    sent = [
        _equal_samples(seq, (seed + 0x3FFFFFFF * start) % 2**32)
        for start, count in enumerate(starts)
        for seq in range(count)
    ]
    arrived: list[bytes] = []
    for at, frame in enumerate(sent):
        fate = fates[at % len(fates)]
        arrived += {"lost": [], "twice": [frame, frame]}.get(fate, [frame])
        if fate == "swapped" and len(arrived) > 1:
            arrived[-2], arrived[-1] = arrived[-1], arrived[-2]
    decoder = FrameDecoder()
    decoded = decoder.feed(b"".join(arrived))
    assert len(decoded) == len(set(arrived))
    assert decoder.counters.duplicates == len(arrived) - len(set(arrived))


def test_a_bad_line_costs_no_whole_frame() -> None:
    """A small run of the script that sends millions."""
    counts = compare(trials=150, seed=3)
    assert counts.whole > 5000
    assert counts.sent - counts.whole > 150
    assert (counts.dropped, counts.twice, counts.wrong) == (0, 0, 0)
