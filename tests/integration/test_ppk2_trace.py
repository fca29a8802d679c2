"""The PPK2's samples as a trace: every joule once, edges to a sample, losses, and the truth within the uncertainty."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from ppk2_frames import amperes, frame, frames, metadata

from fsjoule.meter.energy import energy, instrument_of
from fsjoule.meter.energy.ppk2 import Ppk2
from fsjoule.meter.energy.stated import AMPERES_SHARE, VOLTS_SHARE, stated_limits
from fsjoule.meter.protocol.ppk2 import SOURCE, parse_metadata
from fsjoule.meter.protocol.ppk2_trace import RATE_HZ, Ppk2Trace
from fsjoule.model import Mark, MarkSource, PlainInfo, Window
from fsjoule.model.instrument_file import Accuracy

CONSTANTS = parse_metadata(metadata()).constants
INFO = PlainInfo(
    instrument="ppk2",
    firmware="hardware 9173",
    serial_number="SIM-1",
    rate_hz=RATE_HZ,
    measures_voltage=True,
    simulated=False,
    settings={SOURCE: 1.0},
)
VOLTS = 5.0
Floats = npt.NDArray[np.float64]
# Frames are proved by the ones behind them: so many more samples than a tick's own.
MORE = 1


def _trace(mark_input: int | None = None) -> Ppk2Trace:
    return Ppk2Trace(INFO, CONSTANTS, VOLTS, mark_input)


def _fed(data: bytes, *, piece: int = 4000, mark_input: int | None = None) -> Ppk2Trace:
    """A trace whose bytes arrive when they were sampled."""
    trace = _trace(mark_input)
    for at in range(0, len(data), piece):
        trace.feed(data[at : at + piece], 1_000_000 + (at + piece) // 4 * 10)
    return trace


def _encoded(currents: Floats) -> bytes:
    """Frames of these currents, in the top range, with rounding that averages out."""
    raw = CONSTANTS.raw_of(currents, np.full(len(currents), 4), VOLTS)
    rounded = np.floor(raw + np.random.default_rng(1).random(len(raw))).astype(np.uint32)
    words = rounded | (4 << 14) | ((np.arange(len(raw), dtype=np.uint32) % 64) << 18)
    return words.astype("<u4").tobytes()


@pytest.mark.parametrize("piece", [4000, 1004, 402, 37])
def test_a_tick_has_the_energy_of_all_its_samples(piece: int) -> None:
    rng = np.random.default_rng(6)
    raws = rng.integers(200, 900, 5000)
    data = b"".join(frame(int(raw), 4, at) for at, raw in enumerate(raws))
    trace = _fed(data + frame(500, 4, 5000), piece=piece).take()
    currents = [amperes(int(raw), 4, VOLTS) for raw in raws]
    wanted = np.array(currents).reshape(50, 100).sum(axis=1) * VOLTS * 10e-6
    assert trace.ticks.tolist() == list(range(50))
    assert trace.energy_nj * 1e-9 == pytest.approx(wanted, abs=1e-9)
    assert int(trace.energy_nj.sum()) == pytest.approx(wanted.sum() * 1e9, abs=1)
    assert trace.current_a == pytest.approx(wanted / VOLTS / 1e-3, rel=1e-4)
    assert np.diff(trace.times_us).tolist() == [1000] * 49


def test_pieces_taken_one_by_one_are_the_whole() -> None:
    data = _encoded(0.2 + 0.1 * np.sin(np.arange(30_001) / 500))
    whole = _fed(data).take()
    trace, pieces = _trace(), []
    for at in range(0, len(data), 1004):
        trace.feed(data[at : at + 1004], 1_000_000 + (at + 1004) // 4 * 10)
        pieces.append(trace.take())
    for name in ("ticks", "energy_nj"):
        assert np.concatenate([getattr(each, name) for each in pieces]).tolist() == getattr(whole, name).tolist()
    assert pieces[-1].checkpoint_nj[-1] == whole.checkpoint_nj[-1] == whole.energy_nj.sum()


def test_edges_of_the_chosen_input_are_marks_to_one_sample() -> None:
    levels = [0] * 1000 + [1] * 333 + [0] * 2000 + [1] * 500
    data = b"".join(frame(400, 4, at, level << 3 | at % 2) for at, level in enumerate(levels))
    trace = _fed(data, mark_input=3).take()
    begin = int(trace.times_us[0])
    edges = [(mark.time_us - begin, mark.source) for mark in trace.marks]
    assert edges == [
        (10_000, MarkSource.RISING),
        (13_330, MarkSource.FALLING),
        (33_330, MarkSource.RISING),
    ]
    assert not _fed(data, mark_input=5).take().marks
    assert not _fed(data).take().marks


def test_a_mark_of_the_host_lies_where_the_clocks_say() -> None:
    """The instrument is 100 ppm slow; after ten seconds a mark is at its sample and not a millisecond beside it."""
    trace = _trace()
    data = _encoded(np.full(100_000, 0.2))
    for second in range(10):
        for at in range(0, len(data), 4000):
            counted_us = second * 1_000_000 + (at + 4000) // 4 * 10
            trace.feed(data[at : at + 4000].replace(b"", b""), 5_000_000 + round(counted_us * 1.0001) + 300)
        data = _recounted(data, 100_000)
    trace.mark(Mark(5_000_000 + 9_900_990, "now", MarkSource.HOST))
    taken = trace.take()
    (mark,) = taken.marks
    assert mark.time_us - int(taken.times_us[0]) == pytest.approx(9_900_000, abs=150)


def _recounted(data: bytes, by: int) -> bytes:
    words = np.frombuffer(data, dtype="<u4").copy()
    counters = (words >> 18 & 63) + by
    return ((words & ~np.uint32(63 << 18)) | ((counters % 64).astype(np.uint32) << 18)).astype("<u4").tobytes()


def test_losses_are_told_and_their_ticks_missed() -> None:
    trace = _fed(frames(1050) + frames(2000, first=1050 + 30)).take()
    assert trace.missed == 1
    assert 10 not in trace.ticks
    assert trace.counts.expected == 30
    assert "1 loss of at least 30 samples" in " ".join(trace.faults)
    assert _missed_energy(trace) == pytest.approx(30 * 5.0 * amperes(400, 4, VOLTS), rel=1e-3)


def _missed_energy(trace: object) -> float:
    """The energy over all of a trace of 30 ms, in mJ: gaps are filled."""
    times = trace.times_us  # type: ignore[attr-defined]
    whole = Window(float(times[0]), float(times[0]) + 30_000)
    limits = dataclasses.replace(__import__("fsjoule.meter.energy.validity", fromlist=["x"]).DEFAULT, missed_fraction=1)
    return energy(trace, whole, whole, limits=limits).gross_mj.value  # type: ignore[arg-type]


def test_samples_that_the_counter_does_not_tell_are_found_by_the_clock() -> None:
    """Half a second is lost, of which the counter tells 5 samples: what follows would be half a second early."""
    trace = _trace()
    host_us, before, after = 0, frames(6400), frames(6400, first=5)
    for number in range(120):
        host_us += 64_000 + (500_530 if number == 40 else 0)
        trace.feed(before if number < 40 else after, 9_000_000 + host_us)
    taken = trace.take()
    assert taken.counts.expected == pytest.approx(7680 + 500, abs=3)
    assert int(taken.times_us[-1]) == pytest.approx(9_000_000 + host_us, abs=5000)
    assert "1 loss of at least 5 samples" in taken.faults[0]
    assert taken.faults[1].startswith("500 ms of samples are missing by this computer's clock")


@pytest.mark.parametrize("seconds", [2, 8])
@pytest.mark.parametrize(("kept", "lost"), [(1, 0), (19, 1), (9, 1), (3, 1), (1, 3)])
def test_losses_of_whole_turns_of_the_counter_are_told_by_the_clock(kept: int, lost: int, seconds: int) -> None:
    """USB loses packets of 128 samples, of which the counter sees nothing."""
    trace = _trace()
    packet = frames(128)
    for number in range(seconds * 1_000_000 // 1280):
        if number % (kept + lost) < kept:
            trace.feed(packet, 9_000_000 + (number + 1) * 1280)
    taken = trace.take()
    assert bool(taken.clock_faults) is (lost > 0)


def test_losses_at_the_end_are_waited_for() -> None:
    """Half of the last 0.3 s is lost: not all of the last half second is late, but once it has passed."""
    trace, packet = _trace(), frames(128)
    for number in range(3000):
        if number < 2300 or number > 2530 or number % 2:
            trace.feed(packet, 9_000_000 + (number + 1) * 1280)
        if number in {2000, 2529}:
            assert trace.is_late is (number == 2529)
    assert "148 ms of samples are missing" in "".join(trace.take().clock_faults)


def test_samples_that_come_twice_are_told_by_the_clock() -> None:
    trace, packet = _trace(), frames(128)
    for number in range(3000):
        for _ in range(2 if number % 10 == 0 else 1):
            trace.feed(packet, 9_000_000 + (number + 1) * 1280)
    assert "ms of samples are too many by this computer's clock" in "".join(trace.take().clock_faults)


def test_a_busy_computer_that_is_late_loses_nothing() -> None:
    """Each second another delay of up to a fifth of a second, as a computer has that computes something else."""
    rng = np.random.default_rng(9)
    trace = _trace()
    data = frames(6400)
    for number in range(300):
        late_us = rng.integers(30_000, 200_000) if number > 50 else 0
        trace.feed(data, 9_000_000 + 64_000 * number + int(late_us))
    taken = trace.take()
    assert (taken.missed, taken.faults) == (0, ())
    assert taken.counts.received == 300 * 64 - 1


def test_a_full_converter_is_a_clipped_tick() -> None:
    data = bytearray(frames(1000))
    data[4 * 555 : 4 * 556] = frame(0x3FFF, 4, 555)
    (clipped,) = _fed(bytes(data)).take().clipped
    assert np.flatnonzero(clipped.samples).tolist() == [5]
    most = _fed(_encoded(np.full(1001, 1.02))).take()
    assert most.clipped[0].samples.all()


@pytest.mark.parametrize("source", [True, False])
def test_the_truth_is_within_twice_the_uncertainty(source: bool) -> None:
    """Gain and offset anywhere in their limits, the voltage too; bursts anywhere, windows at their edges."""
    rng = np.random.default_rng(8)
    info = dataclasses.replace(INFO, settings={SOURCE: float(source)})
    inside: list[bool] = []
    for _ in range(60):
        times_s = np.arange(60_001) / 100_000
        edge_s = np.sort(rng.uniform(0.15, 0.55, 2))
        busy = (times_s >= edge_s[0]) & (times_s < edge_s[1])
        true_a = rng.uniform(0.06, 0.2) + rng.uniform(0.02, 0.3) * busy
        nordics = instrument_of(info, MarkSource.RISING)
        assert isinstance(nordics, Ppk2)
        read_a = true_a * (1 + rng.uniform(-1, 1) * nordics.limits[AMPERES_SHARE]) + rng.uniform(-1, 1) * 1e-3
        true_v = VOLTS * (1 + rng.uniform(-1, 1) * nordics.limits[VOLTS_SHARE])
        trace = dataclasses.replace(_fed(_encoded(np.maximum(read_a, 0))).take(), info=info)
        at_us = trace.times_us[0] + edge_s * 1e6
        idle = Window(float(trace.times_us[0]), float(trace.times_us[0]) + 140_000)
        found = energy(trace, Window(*at_us.tolist()), idle, instrument_of(info, MarkSource.RISING)).gross_mj
        wanted = float((true_a * true_v)[busy].sum()) * 10e-6 * 1e3
        inside.append(abs(found.value - wanted) <= 2 * found.uncertainty)
    assert np.mean(inside) >= 0.95


def test_an_instrument_file_replaces_the_makers_limits() -> None:
    told = stated_limits(Accuracy(volts_percent=0.1, volts_offset=0.001, amperes_percent=0.5, amperes_offset=1e-5))
    better = instrument_of(dataclasses.replace(INFO, settings=INFO.settings | told)).steady(5.0, 0.2)
    usual = instrument_of(INFO).steady(5.0, 0.2)
    assert better.gain < usual.gain / 20
    assert better.offset_w == pytest.approx(1e-5 * 5.0 / np.sqrt(3))


@pytest.mark.parametrize(("current", "resolution"), [(10e-6, 0.2e-6), (1e-3, 5e-6), (0.2, 1e-3), (0.0, 0.2e-6)])
def test_the_resolution_is_that_of_the_range(current: float, resolution: float) -> None:
    assert instrument_of(INFO).steady(3.0, current).offset_w == pytest.approx(resolution * 3.0 / np.sqrt(3))


def test_marks_are_as_late_as_their_source() -> None:
    late: Callable[[MarkSource], float] = lambda source: instrument_of(INFO, source).mark_s  # noqa: E731
    assert late(MarkSource.RISING) == pytest.approx(10e-6)
    assert late(MarkSource.HOST) == 5e-3
