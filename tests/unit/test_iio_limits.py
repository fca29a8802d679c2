"""Limits of the kernel's power monitors: an INA228 has one table, whoever reads it."""

from __future__ import annotations

import dataclasses
import math

import pytest
from traces import INFO

from fsjoule.meter.energy.chips import CHIPS, chip_limits
from fsjoule.meter.energy.ina219 import Ina219
from fsjoule.meter.energy.stated import steady_errors
from fsjoule.meter.links.iio import source_of
from fsjoule.model import CurrentMonitor

_OHM = 0.1


def _offset_w(name: str, volts: float) -> float:
    return steady_errors(chip_limits(CHIPS[name], _OHM, None, own_power=False), volts, 0.25).offset_w


@pytest.mark.parametrize("volts", [3.3, 5.0, 12.0, 48.0])
def test_an_ina228_has_the_same_errors_behind_the_kernel_and_in_the_meter(volts: float) -> None:
    info = dataclasses.replace(
        INFO,
        chip=CurrentMonitor.INA228,
        adc_config=0xB700,
        shunt_range_mv=163,
        shunt_lsb_uv=0.3125,
        bus_lsb_mv=0.1953125,
    )
    own = dataclasses.replace(Ina219.of(info).steady(volts, 0.25), noise_w=0.0, shunt=0.0)
    kernels = steady_errors(chip_limits(CHIPS["ina228"], _OHM, None, own_power=False), volts, 0.25)
    assert dataclasses.astuple(dataclasses.replace(kernels, shunt=0.0)) == pytest.approx(dataclasses.astuple(own))


@pytest.mark.parametrize(
    ("name", "offset_v", "per_volt", "at_v"),
    [
        ("ina219", math.hypot(200e-6, 1e-6), 10e-6, 12.0),
        ("ina226", math.hypot(10e-6, 1e-6), 0.5e-6, 12.0),
        ("ina228", math.hypot(1e-6, 0.1e-6), 0.02e-6, 48.0),
        ("ina238", math.hypot(5e-6, 0.2e-6), 0.1e-6, 48.0),
    ],
)
def test_the_offset_counts_from_where_its_data_sheet_states_it(
    name: str, offset_v: float, per_volt: float, at_v: float
) -> None:
    for volts in (5.0, 12.0, 48.0):
        by_hand = math.hypot(offset_v, per_volt * (volts - at_v)) / _OHM * volts / math.sqrt(3)
        assert _offset_w(name, volts) == pytest.approx(by_hand)


@pytest.mark.parametrize(("milliwatts", "beyond"), [(4000, False), (4096, True)])
def test_a_power_at_the_end_of_the_shunts_range_is_out_of_range(milliwatts: int, *, beyond: bool) -> None:
    """A hwmon device shows the power only: 81.92 mV at 0.1 Ohm are 0.8192 A."""
    read = {("in1", "input"): 5000.0, ("power1", "input"): milliwatts * 1e3}
    channels = {name: frozenset({"input"}) for name in ("in1", "power1")}

    def reading(channel: str, attribute: str) -> float:
        return read[channel, attribute]

    source = source_of("hwmon0", "ina226", channels, _OHM, reading)
    assert source is not None
    assert source.reading(reading)[2] is beyond
