"""The figures of a watch, from frames alone."""

from __future__ import annotations

import meter_wire as wire
import pytest

from fsjoule.meter.protocol.frames import FrameDecoder, InfoFrame
from fsjoule.meter.tools.live import Live
from fsjoule.model import Mark, MarkSource

_WATTS = 2500 * 1250 * 0.4e-6  # 0.25 A at 0.1 Ohm and 5 V


def _samples(
    seq: int,
    tick: int,
    energy: int,
    bus: int,
    *,
    missed: int = 0,
    shunt: int = 2500,
    count: int = 20,
    stream_id: int = 1,
) -> bytes:
    return wire.samples(
        seq,
        first_tick=tick,
        first_time_us=tick * 1000,
        energy_raw=energy,
        bus_total=bus,
        missed_total=missed,
        flags=0,
        values=[(shunt, 1250)] * count,
        stream_id=stream_id,
    )


class _Watch:
    def __init__(self, info: bytes | None = None) -> None:
        self.decoder = FrameDecoder()
        (frame,) = self.decoder.feed(info or wire.info(0))
        assert isinstance(frame, InfoFrame)
        self.live = Live(frame, 10.0)

    def take(self, data: bytes) -> list[Mark]:
        return self.live.take(self.decoder.feed(data))


def test_nothing_is_known_before_the_first_sample() -> None:
    reading = _Watch().live.reading()
    assert (reading.watts, reading.mean_watts, reading.joules, reading.seconds) == (None, None, 0.0, 0.0)


def test_watts_volts_amperes_and_joules() -> None:
    watch = _Watch()
    raw, bus = 2500 * 1250 * 20, 1250 * 20
    for number in range(50):
        watch.take(_samples(number + 1, 5000 + number * 20, 777 + number * raw, 99 + number * bus))
    reading = watch.live.reading()
    assert reading.seconds == pytest.approx(1.0)
    for value in (reading.watts, reading.least_watts, reading.mean_watts, reading.largest_watts):
        assert value == pytest.approx(_WATTS)
    assert reading.volts == pytest.approx(5.0)
    assert reading.amperes == pytest.approx(0.25)
    assert reading.joules == pytest.approx(_WATTS)
    assert (reading.received, reading.missed, reading.lost, reading.streams) == (1000, 0, 0, 1)


def test_a_calibration_is_applied() -> None:
    watch = _Watch(wire.info(0, shunt_offset_nv=100_000, current_gain_ppm=10_000, bus_gain_ppm=-20_000))
    watch.take(_samples(1, 0, 0, 0))
    reading = watch.live.reading()
    assert reading.amperes == pytest.approx((0.25 - 0.001) * 1.01)
    assert reading.volts == pytest.approx(5.0 * 0.98)
    assert reading.watts == pytest.approx(0.249 * 1.01 * 4.9)
    assert reading.joules == pytest.approx(0.249 * 1.01 * 4.9 * 0.02)


def test_lost_frames_cost_no_joules_and_missed_ticks_are_counted() -> None:
    watch = _Watch()
    raw, bus = 2500 * 1250 * 20, 1250 * 20
    watch.take(_samples(1, 0, 0, 0))
    watch.take(_samples(5, 80 + 7, 4 * raw, 4 * bus, missed=7))  # three frames lost, and seven ticks missed
    reading = watch.live.reading()
    assert (reading.received, reading.missed, reading.lost) == (40, 7, 60)
    assert reading.joules == pytest.approx(_WATTS * 0.1)
    assert reading.mean_watts == pytest.approx(_WATTS)


def test_streams_add_up() -> None:
    watch = _Watch(wire.info(0, stream_id=1))
    watch.take(_samples(1, 0, 0, 0))
    watch.take(wire.info(2, stream_id=2, rate_hz=500))
    watch.take(_samples(3, 0, 0, 0, stream_id=2))
    reading = watch.live.reading()
    assert reading.streams == 2
    assert reading.seconds == pytest.approx(0.02 + 0.04)
    assert reading.joules == pytest.approx(_WATTS * 0.06)


def test_samples_whose_info_is_still_to_come_are_not_counted() -> None:
    """The meter restarted at another rate, and its first info frame was lost."""
    watch = _Watch(wire.info(0, stream_id=1))
    watch.take(_samples(1, 0, 0, 0))
    watch.take(_samples(1, 0, 0, 0, stream_id=99))
    assert (watch.live.reading().streams, watch.live.reading().seconds) == (1, pytest.approx(0.02))
    watch.take(wire.info(2, stream_id=99, rate_hz=500) + _samples(3, 20, 0, 0, stream_id=99))
    assert (watch.live.reading().streams, watch.live.reading().seconds) == (2, pytest.approx(0.02 + 0.04))


def test_marks_are_told_once_and_the_last_ones_kept() -> None:
    watch = _Watch()
    watch.take(_samples(1, 0, 0, 0))
    for number in range(7):
        text = f"S{number}"
        assert watch.take(wire.mark(2 + number, time_us=number, text=text)) == [Mark(number, text, MarkSource.LINE)]
    assert [mark.text for _, mark in watch.live.marks] == ["S2", "S3", "S4", "S5", "S6"]


def test_the_plot_gets_the_extremes_of_each_part() -> None:
    watch = _Watch()
    for number in range(100):
        shunt = 5000 if number == 60 else 2500
        watch.take(_samples(number + 1, number * 20, 0, 0, shunt=shunt))
    parts = watch.live.ranges(10, 2.0)
    assert len(parts) == 10
    assert [part is not None and part[1] == pytest.approx(2 * _WATTS) for part in parts].count(True) == 1
    assert all(part is not None and part[0] == pytest.approx(_WATTS) for part in parts)
    assert watch.live.ranges(10, 4.0)[:4] == [None] * 4


def test_the_plot_goes_on_when_the_meter_starts_anew() -> None:
    """The meter's own time begins at 0 again."""
    watch = _Watch(wire.info(0, stream_id=1))
    for number in range(100):
        watch.take(_samples(number + 1, number * 20, 0, 0))
    watch.take(wire.info(101, stream_id=2))
    watch.take(_samples(102, 0, 0, 0, shunt=5000, stream_id=2))
    parts = watch.live.ranges(10, 4.0)
    assert [part is not None for part in parts] == [False] * 4 + [True] * 6
    assert parts[-1] is not None
    assert parts[-1][1] == pytest.approx(2 * _WATTS)


def test_joules_go_on_where_the_meters_sum_wraps() -> None:
    watch = _Watch()
    raw, bus = 2500 * 1250 * 20, 1250 * 20
    begin = (1 << 63) - 3 * raw
    for number in range(50):
        energy = (begin + number * raw + (1 << 63)) % (1 << 64) - (1 << 63)
        watch.take(_samples(number + 1, number * 20, energy, number * bus))
    assert watch.live.reading().joules == pytest.approx(_WATTS)
