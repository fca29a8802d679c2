"""The drift of two clocks, from arrivals that a busy machine delays."""

from __future__ import annotations

import random

import pytest

from fsjoule.meter.tools.clock_fit import ClockFit

_UPTIME_S = 987654.0


def _fitted(ppm: float, seconds: int, seed: int, *, busy: bool = False) -> ClockFit:
    """A frame every 20 ms, 0.3 ms on the line and up to some ms late; in some seconds all frames are very late."""
    chance = random.Random(seed)
    fit = ClockFit()
    for number in range(seconds * 50):
        host_s = number * 0.02
        late_s = 0.0003 + chance.expovariate(1 / 0.002)
        if busy and number // 50 % 5 == 0:
            late_s += 0.05 + 0.1 * chance.random()
        fit.add(5e6 + host_s * (1e6 + ppm), _UPTIME_S + host_s + late_s)
    return fit


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("ppm", [0.0, 35.0, -120.0])
def test_the_uncertainty_covers_the_truth(ppm: float, busy: bool) -> None:
    off = 0
    for seed in range(40):
        drift = _fitted(ppm, 60, seed, busy=busy).drift()
        assert drift is not None
        assert drift.uncertainty_ppm < 3
        off += abs(drift.ppm - ppm) > 2 * drift.uncertainty_ppm
    assert off <= 6  # of 40; 2 are expected beyond two standard deviations


def test_hours_take_no_more_memory_than_minutes() -> None:
    fit = ClockFit()
    for second in range(6 * 3600):
        fit.add(second * 1e6 * (1 + 20e-6), _UPTIME_S + second + 0.001)
    assert len(fit._least) <= 2048
    drift = fit.drift()
    assert drift is not None
    assert drift.ppm == pytest.approx(20, abs=0.01)
    assert drift.span_s > 6 * 3600 - 60


def test_a_clock_that_begins_anew_is_fitted_from_there() -> None:
    fit = _fitted(0.0, 20, 1)
    for number in range(1000):
        fit.add(number * 0.02 * (1e6 + 50), _UPTIME_S + 100 + number * 0.02)
    drift = fit.drift()
    assert drift is not None
    assert drift.ppm == pytest.approx(50, abs=0.1)


def test_too_short_a_time_tells_nothing() -> None:
    assert ClockFit().drift() is None
    assert _fitted(0.0, 3, 1).drift() is None
