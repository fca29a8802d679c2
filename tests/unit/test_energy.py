from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import trace_of

from fsjoule.energy import Instrument, energy, per_mib
from fsjoule.errors import MeasurementInvalid
from fsjoule.model import MIB, Value, Window

IDLE = Window(1_000_000, 1_400_000)


def test_constant_power_times_time() -> None:
    trace = trace_of(np.full(2000, 2500))  # 25 mV over 0.1 Ohm at 5 V: 1.25 W
    result = energy(trace, Window(1_500_250.0, 2_500_750.0), IDLE)
    assert result.mean_power_w.value == pytest.approx(1.25)
    assert result.gross_mj.value == pytest.approx(1.25 * 1.0005 * 1e3)
    assert result.net_mj.value == pytest.approx(0, abs=1e-9)
    assert result.power_sd_w == pytest.approx(0)


def test_idle_power_is_taken_off() -> None:
    trace = trace_of(np.concatenate([np.full(500, 2200), np.full(1500, 2600)]))
    result = energy(trace, Window(1_600_000, 2_600_000), IDLE)
    assert result.idle_power_w.value == pytest.approx(1.1)
    assert result.gross_mj.value == pytest.approx(1300)
    assert result.net_mj.value == pytest.approx(200)


@given(st.lists(st.integers(-4000, 8000), min_size=1200, max_size=1200), st.floats(0, 999.9), st.floats(1, 600))
def test_windows_add_up(shunt: list[int], offset_us: float, length_ms: float) -> None:
    """The energy of a window is that of its two halves, wherever in a tick they meet."""
    trace = trace_of(shunt)
    start = 1_450_000 + offset_us
    middle, stop = start + length_ms * 300, start + length_ms * 1000
    whole, first, second = (
        energy(trace, Window(a, b), IDLE).gross_mj.value for a, b in ((start, stop), (start, middle), (middle, stop))
    )
    assert whole == pytest.approx(first + second, rel=1e-9, abs=1e-9)


@given(st.lists(st.integers(0, 8000), min_size=1000, max_size=1000), st.integers(0, 300), st.integers(30, 300))
def test_samples_equal_the_cumulative_energy(shunt: list[int], start_ms: int, length_ms: int) -> None:
    trace = trace_of(shunt)
    begin = 1_400_000 + start_ms * 1000 + 400
    result = energy(trace, Window(begin, begin + min(length_ms, 250) * 1000), IDLE)
    assert result.check_mj == pytest.approx(result.check_sum_mj, rel=1e-12, abs=1e-12)
    tick_mj = max(shunt) * 1250 * trace.info.power_lsb_w
    assert abs(result.check_sum_mj - result.gross_mj.value) <= 2 * tick_mj + 1e-9


def test_a_lost_frame_shows_in_the_cumulative_energy() -> None:
    trace = trace_of(np.full(2000, 2500))
    keep = np.ones(2000, dtype=bool)
    keep[800:820] = False
    holed = dataclasses.replace(
        trace,
        ticks=trace.ticks[keep],
        times_us=trace.times_us[keep],
        shunt_raw=trace.shunt_raw[keep],
        bus_raw=trace.bus_raw[keep],
        lost=20,
    )
    result = energy(holed, Window(1_500_000, 2_500_000), IDLE)
    assert result.check_mj is not None
    assert result.check_mj - result.check_sum_mj == pytest.approx(20 * 1.25)
    assert result.gross_mj.value == pytest.approx(1250)  # the missing ticks count as the mean of the others


@pytest.mark.parametrize(
    "window", [Window(500_000, 1_600_000), Window(1_600_000, 9_000_000), Window(1_700_000, 1_700_000)]
)
def test_a_window_outside_of_the_trace_is_refused(window: Window) -> None:
    with pytest.raises(MeasurementInvalid):
        energy(trace_of(np.full(1000, 2500)), window, IDLE)


def test_uncertainty_follows_the_instrument() -> None:
    trace = trace_of(np.full(3000, 2500))
    window = Window(1_500_000, 3_500_000)
    perfect = energy(trace, window, IDLE, Instrument(0, 0, 0, 0))
    usual = energy(trace, window, IDLE)
    # 1 % shunt and 0.5 % gain as rectangular limits, and 1.25 mA of offset at 5 V, in quadrature.
    assert usual.mean_power_w.uncertainty == pytest.approx(
        np.hypot(1.25 * np.hypot(0.01, 0.005), 1.25e-3 * 5) / np.sqrt(3), rel=1e-3
    )
    assert perfect.gross_mj.uncertainty < 0.02 * usual.gross_mj.uncertainty


def test_energy_per_mib() -> None:
    assert per_mib(Value(200, 2), 4 * MIB) == Value(50, 0.5)
    assert per_mib(Value(200, 2), 0) is None


def test_a_window_longer_than_its_work_is_less_certain() -> None:
    trace = trace_of(np.concatenate([np.full(500, 2200), np.full(2500, 2600)]))
    window = Window(1_600_000, 3_600_000)
    tight, loose = (energy(trace, window, IDLE, Instrument(0, 0, 0, 0), slack_s=s) for s in (0.0, 0.2))
    assert loose.gross_mj.value == tight.gross_mj.value
    assert loose.gross_mj.uncertainty == pytest.approx(1.3e3 * 0.2 / np.sqrt(3), rel=1e-2)
    assert loose.net_mj.uncertainty == pytest.approx(0.2e3 * 0.2 / np.sqrt(3), rel=2e-2)
