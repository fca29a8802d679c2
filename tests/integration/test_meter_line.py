"""A bad line between meter and host: what is lost is counted, nothing wrong is accepted, and no joule goes missing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pytest
from replayed import Chip, Load, Meter

from fsjoule.meter.energy import energy
from fsjoule.meter.protocol.frames import Frame, FrameDecoder
from fsjoule.meter.protocol.sequence import StreamCounters
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import Energy, Ina219Trace, Window
from fsjoule.virtual.lab import services


@dataclass(frozen=True)
class Sent:
    """A stream as the meter sent it, and two windows of it."""

    data: bytes
    work: Window
    idle: Window

    @cached_property
    def pieces(self) -> list[bytes]:
        """The encoded frames, each with its delimiter."""
        return [piece + b"\0" for piece in self.data.split(b"\0")[:-1]]

    @cached_property
    def frames(self) -> list[Frame]:
        return FrameDecoder().feed(self.data)

    @cached_property
    def energy(self) -> Energy:
        builder = TraceBuilder()
        builder.add(self.frames)
        return energy(builder.build(), self.work, self.idle)


def _sent(seconds: int) -> Sent:
    """A board at work all the time: a new level every 50 ms, and noise. The windows begin and end within ticks."""
    random = np.random.default_rng(seconds)
    amperes = np.repeat(random.uniform(0.2, 0.35, seconds * 20), 50) + random.normal(0, 0.01, seconds * 1000)
    load = Load(5.0 - 0.1 * amperes, amperes, step_us=1000)
    data = Meter(services.simulator(), Chip(noise_uv=5)).stream(load)
    second_us = seconds * 1e6
    return Sent(
        data, Window(0.3 * second_us + 123.4, 0.8 * second_us + 777.7), Window(0.1 * second_us, 0.2 * second_us)
    )


@pytest.fixture(scope="module")
def minute() -> Sent:
    return _sent(60)


@pytest.fixture(scope="module")
def half_hour() -> Sent:
    return _sent(1800)


def _received(sent: Sent, arrived: bytes) -> tuple[list[Frame], StreamCounters, Ina219Trace]:
    """What the host makes of what arrives, after the checks that hold whatever arrives."""
    decoder, builder = FrameDecoder(), TraceBuilder()
    frames = [frame for at in range(0, len(arrived), 4096) for frame in decoder.feed(arrived[at : at + 4096])]
    builder.add(frames)
    trace = builder.build()
    counters = decoder.counters
    # Nothing that was not sent.
    assert set(frames) <= set(sent.frames)
    assert len(set(frames)) == len(frames) == counters.frames
    # Every frame between the first and the last one is there or counted as lost.
    newest, oldest = (pick(frame.seq for frame in frames) for pick in (max, min))
    assert counters.frames + counters.lost == newest - oldest + 1
    # Every tick between the first and the last one is there or counted as lost.
    counts = trace.counts
    end = max(trace.ticks[-1] + 1, trace.checkpoint_ticks[-1])
    assert counts.received + counts.lost == counts.expected == end - trace.checkpoint_ticks[0]
    assert (counts.missed, trace.faults) == (0, ())
    return frames, counters, trace


def _require_same_energy(sent: Sent, trace: Ina219Trace) -> None:
    """The window's energy within 0.2 %, and within what its uncertainty says of the gaps at its ends."""
    measured = energy(trace, sent.work, sent.idle)
    whole_mj = sent.energy.gross_mj.value
    off_mj = abs(measured.gross_mj.value - whole_mj)
    assert off_mj <= 0.002 * whole_mj
    assert off_mj <= 3 * measured.gross_budget.gaps_mj + 1e-6 * whole_mj
    assert measured.check_mj is None or measured.check_mj == pytest.approx(measured.check_sum_mj, rel=1e-12)


def _hit(data: bytes, hits: npt.NDArray[np.bool_], random: np.random.Generator) -> bytes:
    """Data with some of its bytes changed, each to another value."""
    content = np.frombuffer(data, np.uint8)
    return (content ^ np.where(hits, random.integers(1, 256, len(content)), 0).astype(np.uint8)).tobytes()


@pytest.mark.parametrize("fraction", [0.0001, 0.001, 0.01])
def test_bytes_hit_one_by_one(minute: Sent, fraction: float) -> None:
    random = np.random.default_rng(1)
    _, counters, trace = _received(minute, _hit(minute.data, random.random(len(minute.data)) < fraction, random))
    assert counters.lost > 0
    assert counters.damaged > 0
    _require_same_energy(minute, trace)


def test_every_twentieth_byte_hit(half_hour: Sent) -> None:
    """One frame in a thousand is whole, one in twenty seconds: what they tell of the energy is enough."""
    random = np.random.default_rng(1)
    arrived = _hit(half_hour.data, random.random(len(half_hour.data)) < 0.05, random)
    _, counters, trace = _received(half_hour, arrived)
    assert counters.lost > 0.98 * len(half_hour.frames)  # of those between the first and the last that arrived
    _require_same_energy(half_hour, trace)


@pytest.mark.parametrize("fraction", [0.0001, 0.001, 0.01, 0.05])
@pytest.mark.parametrize("burst", [16, 500])
def test_bytes_hit_in_bursts(minute: Sent, fraction: float, burst: int) -> None:
    random = np.random.default_rng(2)
    hits = np.zeros(len(minute.data), dtype=bool)
    starts = random.integers(0, len(hits), max(1, round(fraction * len(hits) / burst)))
    for start in starts.tolist():
        hits[start : start + burst] = True
    _, counters, trace = _received(minute, _hit(minute.data, hits, random))
    assert counters.lost > 0
    _require_same_energy(minute, trace)


@pytest.mark.parametrize("fraction", [0.0001, 0.001, 0.01, 0.05])
def test_bytes_that_vanish(minute: Sent, fraction: float) -> None:
    """As when a buffer of an adapter runs over: stretches of 50 bytes, up to several of them in a second."""
    random = np.random.default_rng(3)
    kept = np.ones(len(minute.data), dtype=bool)
    for start in random.integers(0, len(kept), max(1, round(fraction * len(kept) / 50))).tolist():
        kept[start : start + 50] = False
    _, counters, trace = _received(minute, np.frombuffer(minute.data, np.uint8)[kept].tobytes())
    assert counters.lost > 0
    _require_same_energy(minute, trace)


@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("fate", ["dropped", "damaged", "truncated", "sent twice", "swapped"])
def test_the_fates_of_frames(minute: Sent, fate: str, fraction: float) -> None:
    random = np.random.default_rng(4)
    pieces = list(minute.pieces)
    chosen = np.flatnonzero(random.random(len(pieces) - 2) < fraction) + 1
    for at in chosen.tolist():
        whole = pieces[at]
        if fate == "swapped":
            pieces[at], pieces[at + 1] = pieces[at + 1], whole
        elif fate == "damaged":
            place = int(random.integers(len(whole) - 1))
            pieces[at] = whole[:place] + bytes([whole[place] ^ int(random.integers(1, 256))]) + whole[place + 1 :]
        else:
            cut = int(random.integers(len(whole)))
            pieces[at] = {"dropped": b"", "truncated": whole[:cut], "sent twice": whole * 2}[fate]
    frames, counters, trace = _received(minute, b"".join(pieces))
    if fate == "sent twice":
        assert (counters.duplicates, counters.lost) == (len(chosen), 0)
    elif fate == "swapped":
        assert counters.lost == 0
        assert counters.reordered > 0
    elif fate == "truncated":
        # Its missing end takes its delimiter with it, and so the next frame.
        assert len(chosen) <= counters.lost <= 2 * len(chosen)
    else:
        assert counters.lost == len(chosen)
    assert len(frames) + counters.lost == len(pieces)
    _require_same_energy(minute, trace)
