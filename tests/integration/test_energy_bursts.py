"""Bursts of 20 to 300 ms through the real firmware core: at their marks, where samples spread both steps, or not."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from replayed import Chip, Load, Meter, Settings

from fsjoule.meter.energy import energy
from fsjoule.meter.energy.ina219 import Ina219
from fsjoule.model import Window
from fsjoule.virtual.lab import services

STEP_US = 20
END_US = 950_000
IDLE = Window(50_000, 300_000)
READING_S = 300e-6  # what fsjoule.meter.energy.ina219 allows for; transfers take no time here
LATE_US = 10e6 / 115200
EXACT = {"offset_v": 0.0, "offset_bus_v": None, "offset_per_volt": 0.0, "gain": 0.0, "shunt": 0.0}


def _case(program: Path, rate_hz: int, at_marks: bool, seed: int) -> tuple[float, float, float]:
    """Relative errors of the energy, without and with sharpened ends, and the stated U (k=2), relative, too."""
    random = np.random.default_rng(seed)
    low_w = random.uniform(0.25, 1.25)
    high_w = low_w * random.uniform(1.2, 2.5)
    length_us = float(np.exp(random.uniform(math.log(20e3), math.log(300e3))))
    begin = round(random.uniform(420e3, 620e3) / STEP_US)
    end = begin + round(length_us / STEP_US)
    watts = np.full(END_US // STEP_US, low_w)
    watts[begin:end] = high_w
    load = Load(np.full(len(watts), 5.0), watts / 5.0, STEP_US)
    chip = Chip(noise_uv=random.uniform(0, 10), seed=int(random.integers(2**31)))
    trace = Meter(program, chip, Settings(rate_hz=rate_hz)).trace(load)
    start_us, stop_us = float(begin * STEP_US), float(end * STEP_US)
    if not at_marks:
        start_us -= random.uniform(-0.4, 1.0) * length_us / 2
        stop_us = min(stop_us + random.uniform(-0.4, 1.0) * length_us / 2, END_US - 20e3)
    info = dataclasses.replace(trace.info, simulated=False)
    instrument = Ina219.of(info)
    instrument = dataclasses.replace(instrument, shift_s=instrument.shift_s + READING_S, **EXACT)
    seen = Window(*(float(math.floor(at + LATE_US + random.uniform(0, 50))) for at in (start_us, stop_us)))
    true_mj = load.energy_mj(start_us, stop_us)
    plain, sharp = (
        energy(dataclasses.replace(trace, info=info), seen, IDLE, each).gross_mj
        for each in (dataclasses.replace(instrument, sharpening=0.0), instrument)
    )
    return plain.value / true_mj - 1, sharp.value / true_mj - 1, 2 * sharp.uncertainty / true_mj


@pytest.mark.parametrize("rate_hz", [625, 1000])
@pytest.mark.parametrize("at_marks", [True, False], ids=["at the marks", "anywhere"])
@pytest.mark.parametrize("cases", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_energy_of_bursts_is_right_on_average(rate_hz: int, at_marks: bool, cases: int) -> None:
    case = partial(_case, services.simulator(), rate_hz, at_marks)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        plain, sharp, wide = np.array(list(pool.map(case, range(cases)))).T
    error = sharp.std() / math.sqrt(cases)
    covered, furthest = np.mean(np.abs(sharp) <= wide), np.quantile(np.abs(sharp), 0.95)
    where = "at the marks" if at_marks else "anywhere"
    rms, before = (math.sqrt(float(np.mean(each**2))) for each in (sharp, plain))
    said = (
        f"{cases} bursts at {rate_hz} samples/s, {where}: mean error {sharp.mean():+.3%} ± {error:.3%} "
        f"(without sharpening {plain.mean():+.3%}), rms {rms:.3%} ({before:.3%}); U covers {covered:.1%}, its median "
        f"is {np.median(wide):.2%}, and 95 % of the errors are below {furthest:.2%}"
    )
    sys.stdout.write(f"{said}\n")  # for pytest -rP
    if at_marks:
        assert abs(sharp.mean()) <= 3e-4 + 2 * error, said
        assert plain.mean() < -1.5e-3, said
    else:
        assert abs(sharp.mean()) <= 5e-4 + 2 * error, said
    assert covered >= 0.95, said
    # The 95 % point of 300 errors is itself uncertain by a tenth.
    assert np.median(wide) <= (2 if cases == 1000 else 2.4) * furthest, said
