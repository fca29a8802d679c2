"""Steps of a square load found in traces that are made by hand, and the marks held against them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from traces import trace_of

from fsjoule.bench.square_load import BUSY_S, IDLE_S, PULSES, analyse
from fsjoule.errors import MeasurementInvalid
from fsjoule.model import Ina219Trace, Mark, MarkLine, MarkSource

_LOW, _HIGH = 2200, 2640  # 1.10 W and 1.32 W at 5 V
_START_TICK = 1000
_UART, _GPIO = MarkLine("/dev/ttyS1"), MarkLine("/sys/class/leds/fsjoule-mark/brightness")


def _square(late_start_ms: float, late_stop_ms: float, *, noise: float = 0.0, inside_tick: float = 0.0) -> Ina219Trace:
    """A square load whose marks come late by so much; its steps lie `inside_tick` of a tick behind a tick's begin."""
    busy, period = round(BUSY_S * 1000), round((BUSY_S + IDLE_S) * 1000)
    shunt = np.full(1000 + PULSES * period, float(_LOW))
    marks: list[Mark] = []
    for number in range(PULSES):
        up = 600 + number * period
        shunt[up : up + busy] = _HIGH
        shunt[up] -= (_HIGH - _LOW) * inside_tick
        shunt[up + busy] += (_HIGH - _LOW) * inside_tick
        for at, late_ms, letter in ((up, late_start_ms, "S"), (up + busy, late_stop_ms, "E")):
            time_us = (_START_TICK + at + inside_tick + late_ms) * 1000
            marks.append(Mark(round(time_us), f"{letter}{number + 1}"))
    shunt += np.random.default_rng(1).normal(0, noise, len(shunt))
    return trace_of(np.round(shunt), marks=marks, start_tick=_START_TICK)


@pytest.mark.parametrize(("late_start_ms", "late_stop_ms"), [(0.0, 0.0), (3.25, -7.5), (-12.0, 40.0)])
@pytest.mark.parametrize("inside_tick", [0.0, 0.3])
def test_latencies_are_those_of_the_marks(late_start_ms: float, late_stop_ms: float, inside_tick: float) -> None:
    found = analyse(_square(late_start_ms, late_stop_ms, inside_tick=inside_tick), _UART)
    assert (found.low_w, found.high_w) == pytest.approx((1.10, 1.32))
    assert (found.start.steps, found.stop.steps) == (PULSES, PULSES)
    for latency, late_ms in ((found.start, late_start_ms), (found.stop, late_stop_ms)):
        assert latency.median_s == pytest.approx(late_ms / 1e3, abs=5e-6)
        assert latency.farthest_s == pytest.approx(abs(late_ms) / 1e3, abs=5e-6)


def test_noise_moves_a_step_by_a_tick_at_most() -> None:
    found = analyse(_square(2.0, 2.0, noise=60.0), _UART)
    for latency in (found.start, found.stop):
        assert latency.median_s == pytest.approx(0.002, abs=0.0005)
        assert latency.farthest_s < 0.004
    assert found.noise_w == pytest.approx(60 * 1250 * 0.4e-6, rel=0.2)


def test_a_pulse_without_a_rest_before_it_is_left_out() -> None:
    trace = _square(0.0, 0.0)
    shunt = trace.shunt_raw.copy()
    second = 600 + round((BUSY_S + IDLE_S) * 1000)
    shunt[second - 400 : second] = _HIGH
    marks = [
        mark if mark.text != "E1" else replace(mark, time_us=(_START_TICK + second - 20) * 1000) for mark in trace.marks
    ]
    found = analyse(replace(trace, shunt_raw=shunt, marks=tuple(marks)), _UART)
    assert (found.start.steps, found.stop.steps) == (PULSES - 1, PULSES - 1)
    assert found.start.farthest_s < 1e-5


def test_missing_marks_and_missing_steps_are_said() -> None:
    trace = _square(0.0, 0.0)
    with pytest.raises(MeasurementInvalid, match="marks did not arrive: E3"):
        analyse(replace(trace, marks=tuple(mark for mark in trace.marks if mark.text != "E3")), _UART)
    flat = np.full_like(trace.shunt_raw, _LOW)
    with pytest.raises(MeasurementInvalid, match="the steps are too few or too small"):
        analyse(replace(trace, shunt_raw=flat), _UART)


def test_marks_of_the_host_are_not_the_boards() -> None:
    trace = _square(0.0, 0.0)
    ours = tuple(replace(mark, source=MarkSource.HOST) for mark in trace.marks)
    with pytest.raises(MeasurementInvalid, match="marks did not arrive: S1, S2"):
        analyse(replace(trace, marks=ours), _UART)


def test_edges_of_a_gpio_are_marks_in_their_order() -> None:
    trace = _square(3.25, -7.5)
    edges = {"S": MarkSource.RISING, "E": MarkSource.FALLING}
    marks = _GPIO.marks(Mark(mark.time_us, "", edges[mark.text[0]]) for mark in trace.marks)
    found = analyse(replace(trace, marks=marks), _GPIO)
    assert (found.start.median_s, found.stop.median_s) == pytest.approx((0.00325, -0.0075), abs=5e-6)
    with pytest.raises(MeasurementInvalid, match="19 marks of the kind 'falling edge' arrived, and 20 were sent"):
        analyse(replace(trace, marks=marks[:-1]), _GPIO)
