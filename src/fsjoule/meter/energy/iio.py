"""Limits of the errors of a power monitor that the kernel's IIO or hwmon shows.

`CHIPS` has the maxima of the data sheets: TI SBOS448G, section 7.5 (INA219, grade A, at the widest range), SBOS547B,
section 5.5 (INA226), SLYS022A, section 1 (INA228; its bus has the limits of the INA238), and INA238-Q1 of June 2021.
docs/energy.md lists them. An instrument's info carries the limits that it was measured with, so that a later table
changes no older figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fsjoule.meter.energy.stated import (
    AMPERES_OFFSET,
    AMPERES_PER_VOLT,
    AMPERES_SHARE,
    AMPERES_STEP,
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
    """Limits at 25 degrees, their drifts per kelvin, and the steps of both converters, in V.

    `offset_per_volt` is the common mode's part, from 12 V. `power_steps` is the power's step in V times the current's.
    `turn_s` is how long a new reading takes where the kernel does not tell.
    """

    shunt_offset_v: float
    shunt_offset_v_k: float
    shunt_share: float
    shunt_share_k: float
    shunt_step_v: float
    bus_offset_v: float
    bus_offset_v_k: float
    bus_share: float
    bus_share_k: float
    bus_step_v: float
    offset_per_volt: float
    power_steps: float
    turn_s: float


_INA219: Final = Chip(200e-6, 0.1e-6, 5e-3, 83e-6, 10e-6, 0.0, 0.0, 5e-3, 83e-6, 4e-3, 10e-6, 20.0, 1.064e-3)
CHIPS: Final[Mapping[str, Chip]] = {
    "ina219": _INA219,
    "ina220": _INA219,
    "ina226": Chip(10e-6, 0.1e-6, 1e-3, 50e-6, 2.5e-6, 7.5e-3, 40e-6, 1e-3, 50e-6, 1.25e-3, 0.5e-6, 25.0, 35.2e-3),
    "ina228": Chip(1e-6, 0.01e-6, 5e-4, 20e-6, 0.3125e-6, 5e-3, 40e-6, 1e-3, 25e-6, 0.2e-3, 0.02e-6, 3.2, 3.2e-3),
    "ina238": Chip(5e-6, 0.02e-6, 1e-3, 25e-6, 5e-6, 5e-3, 40e-6, 1e-3, 25e-6, 3.125e-3, 0.1e-6, 0.2, 3.2e-3),
}


def chip_limits(chip: Chip, ohm: float, file: InstrumentFile | None, *, own_power: bool) -> dict[str, float]:
    """The settings that a chip's data sheet gives, at a resistor of `ohm`; `own_power`: the chip multiplies itself."""
    kelvin = _KELVIN if file is None else file.room.kelvin_from(_DATA_SHEET_CELSIUS)
    shunt = (None if file is None else file.shunt) or Shunt(ohm=ohm)
    return {
        VOLTS_SHARE: math.hypot(chip.bus_share, chip.bus_share_k * kelvin),
        VOLTS_OFFSET: math.hypot(chip.bus_offset_v, chip.bus_offset_v_k * kelvin),
        VOLTS_STEP: chip.bus_step_v,
        AMPERES_SHARE: math.hypot(chip.shunt_share, chip.shunt_share_k * kelvin),
        AMPERES_OFFSET: math.hypot(chip.shunt_offset_v, chip.shunt_offset_v_k * kelvin) / ohm,
        AMPERES_PER_VOLT: chip.offset_per_volt / ohm,
        AMPERES_STEP: chip.shunt_step_v / ohm,
        WATTS_STEP: chip.power_steps * chip.shunt_step_v / ohm if own_power else 0.0,
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
