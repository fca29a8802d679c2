"""Windows over a chip that converts more slowly than it is asked: too short ones have no energy, others hold it."""

from __future__ import annotations

import numpy as np
import pytest

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy import energy, instrument_of
from fsjoule.meter.energy.chips import CHIPS, chip_limits
from fsjoule.meter.links.iio import IIO
from fsjoule.meter.protocol.polled import SampleTrace
from fsjoule.model import MarkSource, PlainInfo, PlainTrace, Window
from fsjoule.model.meter import READ_S, TURN_S

_READ_S = 0.01
_VOLTS, _IDLE_A, _BURST_A = 5.0, 0.1, 0.5


def _trace(turn_s: float, window: Window, phase_s: float) -> PlainTrace:
    """An INA226 asked every 10 ms, whose readings are the means over its turns; its load bursts in the window."""
    limits = chip_limits(CHIPS["ina226"], 0.1, None, own_power=False)
    info = PlainInfo(
        instrument=IIO,
        firmware="ina226",
        serial_number="SIM-1",
        rate_hz=round(1 / _READ_S),
        measures_voltage=True,
        simulated=True,
        settings=limits | {READ_S: _READ_S, TURN_S: turn_s},
    )
    trace = SampleTrace(info)
    for asked_us in range(0, 6_000_000, round(_READ_S * 1e6)):
        end_us = ((asked_us * 1e-6 - phase_s) // turn_s * turn_s + phase_s) * 1e6
        shared_us = min(end_us, window.stop_us) - max(end_us - turn_s * 1e6, window.start_us)
        part = max(0.0, shared_us) / (turn_s * 1e6)
        trace.add(asked_us - round(turn_s * 1e6), _VOLTS, _IDLE_A + part * (_BURST_A - _IDLE_A))
    return trace.take()


def _off(turn_s: float, turns: float, random: np.random.Generator) -> float:
    """How many standard uncertainties the energy of a burst that lasts so many turns is off."""
    start_us = float(random.uniform(2.5e6, 3e6))
    window = Window(start_us, start_us + turns * turn_s * 1e6)
    trace = _trace(turn_s, window, float(random.uniform(0.0, turn_s)))
    found = energy(trace, window, Window(0.5e6, 2.4e6), instrument_of(trace.info, MarkSource.HOST)).gross_mj
    return abs(found.value - _VOLTS * _BURST_A * window.duration_s * 1e3) / found.uncertainty


@pytest.mark.parametrize("turn_s", [0.0352, 0.141, 0.563])
def test_a_window_needs_three_turns_of_the_chip(turn_s: float) -> None:
    """Asked every 10 ms it shows the same reading again: three questions are one look at the load, or two."""
    random = np.random.default_rng(4)
    new_ms = f"{turn_s * 1e3:.3g}"
    with pytest.raises(MeasurementInvalid, match=rf"has a new reading every {new_ms} ms: 3 readings are needed"):
        _off(turn_s, 2.9, random)
    assert sum(_off(turn_s, 3.1, random) <= 2 for _ in range(60)) >= 57


def test_what_a_supply_draws_between_two_late_readings_is_not_known() -> None:
    """Nobody asks for 300 ms, in which 3 W flow instead of 0.5 W."""
    window = Window(1_000_000, 3_000_000)
    whole = _trace(0.0352, window, 0.0).info
    trace = SampleTrace(whole)
    for asked_us in range(0, 4_000_000, 10_000):
        if not 2_000_000 < asked_us < 2_300_000:
            trace.add(asked_us, _VOLTS, _IDLE_A if asked_us < 3_500_000 else 0.6)
    found = energy(trace.take(), window, Window(100_000, 900_000), instrument_of(whole, MarkSource.HOST))
    wanted_mj = 2000 * _VOLTS * _IDLE_A + 300 * _VOLTS * (0.6 - _IDLE_A)
    assert abs(found.gross_mj.value - wanted_mj) <= 2 * found.gross_mj.uncertainty
