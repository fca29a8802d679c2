"""Limits of the errors of a power monitor that the kernel's IIO or hwmon shows.

`CHIPS` has the maxima of the data sheets: TI SBOS448G, section 7.5 (INA219, grade A, at the widest range), SBOS547B,
section 5.5 (INA226), and INA238-Q1 of June 2021. The INA228's are those of `current_monitor.py`, at its wider range.
docs/energy.md lists them. An instrument's info carries the limits that it was measured with, so that a later table
changes no older figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.meter.energy.current_monitor import INA228, ChipLimits
from fsjoule.meter.energy.stated import (
    AMPERES_OFFSET,
    AMPERES_PER_VOLT,
    AMPERES_SHARE,
    AMPERES_STEP,
    OFFSET_AT_V,
    RESISTOR_SHARE,
    VOLTS_OFFSET,
    VOLTS_SHARE,
    VOLTS_STEP,
    WATTS_STEP,
    Stated,
)
from fsjoule.model import MarkSource, PlainInfo
from fsjoule.model.instrument_file import InstrumentFile, Shunt
from fsjoule.model.meter import READ_S, TURN_S

# Beside the limits: the resistor.
OHM: Final = "ohm"

# The temperatures at which a meter is used without an instrument file.
_KELVIN: Final = 10.0
_DATA_SHEET_CELSIUS: Final = 25.0


@dataclass(frozen=True, slots=True)
class Chip:
    """Limits of a chip. `power_steps` is the power's step in V times the current's.

    `turn_s` is how long a new reading takes where the kernel does not tell.
    """

    limits: ChipLimits
    power_steps: float
    turn_s: float


_INA219: Final = Chip(
    ChipLimits(
        shunt_step_v=10e-6,
        bus_step_v=4e-3,
        noise_v=0.0,
        offset_v=200e-6,
        offset_at_v=12.0,
        offset_per_volt=10e-6,
        offset_per_kelvin_v=0.1e-6,
        bus_offset_v=0.0,
        bus_offset_per_kelvin_v=0.0,
        current_gain=5e-3,
        current_gain_per_kelvin=83e-6,
        bus_gain=5e-3,
        bus_gain_per_kelvin=83e-6,
    ),
    power_steps=20.0,
    turn_s=1.064e-3,
)
_INA226: Final = Chip(
    ChipLimits(
        shunt_step_v=2.5e-6,
        bus_step_v=1.25e-3,
        noise_v=0.0,
        offset_v=10e-6,
        offset_at_v=12.0,
        offset_per_volt=0.5e-6,
        offset_per_kelvin_v=0.1e-6,
        bus_offset_v=7.5e-3,
        bus_offset_per_kelvin_v=40e-6,
        current_gain=1e-3,
        current_gain_per_kelvin=50e-6,
        bus_gain=1e-3,
        bus_gain_per_kelvin=50e-6,
    ),
    power_steps=25.0,
    turn_s=35.2e-3,
)
# The INA228's sister with 16 bits. Its offset is stated at 48 V and at 0 V: counted from 48 V it is never too small.
_INA238: Final = Chip(
    replace(
        INA228,
        shunt_step_v=5e-6,
        bus_step_v=3.125e-3,
        noise_v=0.0,
        offset_v=5e-6,
        offset_per_volt=0.1e-6,
        offset_per_kelvin_v=0.02e-6,
        current_gain=1e-3,
        current_gain_per_kelvin=25e-6,
    ),
    power_steps=0.2,
    turn_s=3.2e-3,
)
CHIPS: Final[Mapping[str, Chip]] = {
    "ina219": _INA219,
    "ina220": _INA219,
    "ina226": _INA226,
    "ina228": Chip(INA228, power_steps=3.2, turn_s=3.2e-3),
    "ina238": _INA238,
}


def chip_limits(chip: Chip, ohm: float, file: InstrumentFile | None, *, own_power: bool) -> dict[str, float]:
    """The settings that a chip's data sheet gives, at a resistor of `ohm`; `own_power`: the chip multiplies itself."""
    kelvin = _KELVIN if file is None else file.room.kelvin_from(_DATA_SHEET_CELSIUS)
    shunt = (None if file is None else file.shunt) or Shunt(ohm=ohm)
    limits = chip.limits
    return {
        VOLTS_SHARE: math.hypot(limits.bus_gain, limits.bus_gain_per_kelvin * kelvin),
        VOLTS_OFFSET: math.hypot(limits.bus_offset_v, limits.bus_offset_per_kelvin_v * kelvin),
        VOLTS_STEP: limits.bus_step_v,
        AMPERES_SHARE: math.hypot(limits.current_gain, limits.current_gain_per_kelvin * kelvin),
        AMPERES_OFFSET: math.hypot(limits.offset_v, limits.offset_per_kelvin_v * kelvin) / ohm,
        AMPERES_PER_VOLT: limits.offset_per_volt / ohm,
        OFFSET_AT_V: limits.offset_at_v,
        AMPERES_STEP: limits.shunt_step_v / ohm,
        WATTS_STEP: chip.power_steps * limits.shunt_step_v / ohm if own_power else 0.0,
        RESISTOR_SHARE: math.hypot(shunt.tolerance_percent * 1e-2, shunt.drift_ppm_per_kelvin * 1e-6 * kelvin),
        OHM: ohm,
    }


def errors(info: PlainInfo, marks: MarkSource) -> Stated:
    """See `fsjoule.meter.instruments.Errors`. Marks are the host's, whose clock the readings have, too.

    A reading is the mean over the newest turn of the chip, which ended up to a turn ago. Its time is a turn before the
    question, so that it is displaced by up to half a turn and the time between two questions.
    """
    del marks
    turn_s, read_s = info.settings[TURN_S], info.settings[READ_S]
    return Stated(info.settings, mark_s=read_s, sample_s=max(turn_s / 2 + read_s, info.tick_us * 1e-6))
