"""What goes astray, told from noise, from a meter's own losses and from a computer that stood still."""

from __future__ import annotations

import random
from collections.abc import Callable

import meter_wire as wire

from fsjoule.meter.links.receiver import Stray, StrayWatch
from fsjoule.meter.protocol.frames import FrameDecoder

_FRAMES_PER_S = 50


def _frame(seq: int, dropped: int) -> bytes:
    if seq % _FRAMES_PER_S == 0:
        return wire.info(seq, frames_dropped=dropped)
    return wire.samples(
        seq,
        first_tick=seq * 20,
        first_time_us=seq * 20_000,
        energy_raw=0,
        missed_total=0,
        flags=0,
        values=[(2500, 1250)] * 20,
    )


def _watched(
    seconds: int, spoil: Callable[[int, bytes], bytes], dropped: Callable[[int], int] = lambda _s: 0
) -> list[Stray]:
    """What each span of a stream came to, `spoil` being what the line does to a frame."""
    decoder = FrameDecoder()
    watch = StrayWatch(0.0, decoder.counters)
    found: list[Stray] = []
    for seq in range(seconds * _FRAMES_PER_S):
        frames = decoder.feed(spoil(seq, _frame(seq, dropped(seq))))
        stray = watch.take(frames, decoder.counters, seq / _FRAMES_PER_S)
        found += [stray] if stray is not None else []
    return found


def test_intact_bytes_are_those_on_the_line() -> None:
    pieces = [
        _frame(0, 0),
        _frame(1, 0),
        wire.mark(2, time_us=1, text="S1"),
        wire.reply(3, request=1, command=0x10, status=0, values=(0, 0, 0)),
    ]
    decoder = FrameDecoder()
    for piece in pieces:
        before = decoder.counters.intact_bytes
        decoder.feed(piece)
        assert decoder.counters.intact_bytes - before == len(piece)


def test_a_clean_line_is_clean() -> None:
    strays = _watched(10, lambda _seq, data: data)
    assert len(strays) == 4
    assert all(stray.bad_spans == 0 and stray.lost_frames == 0 and stray.missing < 0.01 for stray in strays)


def test_a_reader_that_takes_every_third_frame_is_found_after_two_spans() -> None:
    strays = _watched(9, lambda seq, data: b"" if seq % 3 == 0 else data)
    assert [stray.found for stray in strays] == [False, True, True, True]
    assert 0.25 < strays[1].missing < 0.4
    assert "of the meter's bytes are lost" in str(strays[1])


def test_a_reader_that_takes_pieces_of_frames_is_found() -> None:
    chance = random.Random(1)

    def spoil(_seq: int, data: bytes) -> bytes:
        pieces = [data[i : i + 16] for i in range(0, len(data), 16)]
        return b"".join(piece for piece in pieces if chance.random() > 0.1)

    assert _watched(9, spoil)[-1].found


def test_noise_is_no_reader() -> None:
    """Half of all frames have a wrong byte, and no byte is missing."""

    def spoil(seq: int, data: bytes) -> bytes:
        return data[:20] + bytes([data[20] ^ 0x55 or 1]) + data[21:] if seq % 2 else data

    strays = _watched(9, spoil)
    assert all(stray.lost_frames > 30 and stray.bad_spans == 0 for stray in strays)


def test_what_the_meter_had_no_room_for_went_not_astray() -> None:
    """Every tenth frame is dropped by the meter, which counts it."""
    strays = _watched(9, lambda seq, data: b"" if seq % 10 == 5 else data, dropped=lambda seq: (seq + 5) // 10)
    assert not any(stray.found for stray in strays)


def test_a_computer_that_stood_still_once_is_no_reader() -> None:
    strays = _watched(12, lambda seq, data: b"" if 150 <= seq < 240 else data)
    assert sum(stray.bad_spans == 1 for stray in strays) >= 1
    assert not any(stray.found for stray in strays)
