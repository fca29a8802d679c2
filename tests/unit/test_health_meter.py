"""The doctor on meters beside the one of every day: a chip of a later firmware."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plain_traces import plain_trace_of
from traces import INFO, trace_of

from fsjoule.bench.health.meter import check_meter, judge_meter
from fsjoule.bench.health.result import Health
from fsjoule.model import CurrentMonitor, Trace
from fsjoule.testing import FakeClock, FakeMeter

_LATER = replace(INFO, chip=CurrentMonitor.UNKNOWN)


def test_a_meter_whose_chip_is_unknown_is_broken_and_update_is_the_advice() -> None:
    found = judge_meter(trace_of(np.zeros(2000), info=_LATER), ["not calibrated yet: zero"])
    assert found.health is Health.BROKEN
    assert "does not know the meter's chip" in found.seen
    assert "not calibrated yet: zero" in found.seen
    assert found.advice.startswith("update fsjoule")


@pytest.mark.parametrize(("range_mv", "lsb_uv"), [(163, 0.3125), (40, 0.078125)])
@pytest.mark.parametrize(
    ("noise_uv", "adc_config", "health"),
    [(4.0, 0xB700, Health.OK), (60.0, 0xB700, Health.DOUBTFUL), (30.0, 0xB901, Health.DOUBTFUL)],  # 0xB901: means of 4
)
def test_an_ina228_is_noisy_by_its_own_noise_and_not_by_its_step(
    range_mv: int, lsb_uv: float, noise_uv: float, adc_config: int, health: Health
) -> None:
    info = replace(
        INFO,
        chip=CurrentMonitor.INA228,
        adc_config=adc_config,
        shunt_range_mv=range_mv,
        shunt_lsb_uv=lsb_uv,
        bus_lsb_mv=0.1953125,
    )
    readings = np.random.default_rng(3).normal(0.0, noise_uv / lsb_uv, 2000)
    readings -= readings.mean()
    found = judge_meter(trace_of(np.round(readings).astype(int), bus_raw=25_600, info=info), [])
    assert (found.health, "it is noisy" in found.seen) == (health, health is Health.DOUBTFUL)


_LATER_TRACE = trace_of(np.zeros(20), info=_LATER)


@pytest.mark.parametrize("trace", [_LATER_TRACE, plain_trace_of(trace_of(np.zeros(20)))])
def test_it_is_broken_in_guest_time_too(trace: Trace) -> None:
    found = check_meter(FakeMeter(trace), FakeClock(), list, guest_time=True)
    assert (found.health, found.advice[:14]) == (Health.BROKEN, "update fsjoule")
