"""Chips that monitor a current: limits of their errors, and their times. They are the same whoever reads the chip.

`CHIPS` has the maxima of TI's data sheets: SBOS448G, section 7.5 (INA219, grade A, at the widest range), SBOS547B,
section 5.5 (INA226), SLYS022A, section 1 (INA228-Q1: offset, gain and common mode of the shunt) and INA238-Q1 of June
2021, the same chip with 16 bits, whose limits the INA228's bus has. SBOSA20 (INA228), section 7: steps, times,
averaging. docs/energy.md lists every number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

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
)
from fsjoule.model import Ina219Info
from fsjoule.model.instrument_file import InstrumentFile, Shunt

# In an instrument's settings, beside the limits: the resistor.
OHM: Final = "ohm"

# The temperatures at which a meter is used without an instrument file.
KELVIN: Final = 10.0
DATA_SHEET_CELSIUS: Final = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipLimits:
    """Limits of a chip's errors at 25 degrees, each +-, and their drifts per kelvin.

    `shunt_step_v` and `bus_step_v` are the steps of its converters. The shunt's offset `offset_v` holds at
    `offset_at_v` on the bus and grows by `offset_per_volt` from there. Gains are fractions of a reading.
    `noise_v` is the standard deviation of a reading of the shunt by the chip's own noise; 0 is one below its step.
    """

    shunt_step_v: float
    bus_step_v: float
    noise_v: float
    offset_v: float
    offset_at_v: float
    offset_per_volt: float
    offset_per_kelvin_v: float
    bus_offset_v: float
    bus_offset_per_kelvin_v: float
    current_gain: float
    current_gain_per_kelvin: float
    bus_gain: float
    bus_gain_per_kelvin: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipTiming:
    """Typical times in s: a turn of all its conversions, and how long it looks at the shunt within a turn.

    `age_s` is how old the middle of that look is when the chip shows it. `read_s` is how long after the end of a tick
    a real meter reads the shunt: in the midst of its transfer, at 400 kHz.
    """

    turn_s: float
    shunt_s: float
    age_s: float
    read_s: float


@dataclass(frozen=True, slots=True)
class Chip:
    """Limits of a chip. `power_steps` is the power's step in V times the current's.

    `turn_s` is how long a new reading takes where the kernel does not tell.
    """

    limits: ChipLimits
    power_steps: float
    turn_s: float


# From 25 to 85 degrees the limit of the error grows from 0.5 % to 1 %.
_INA219_GAIN_PER_KELVIN: Final = 0.005 / 60
_INA219: Final = Chip(
    ChipLimits(
        shunt_step_v=10e-6,
        bus_step_v=4e-3,
        noise_v=0.0,  # below a step
        offset_v=200e-6,
        offset_at_v=12.0,
        offset_per_volt=10e-6,  # common-mode rejection, 100 dB
        offset_per_kelvin_v=0.1e-6,
        bus_offset_v=0.0,  # the gain's limit includes it
        bus_offset_per_kelvin_v=0.0,
        current_gain=5e-3,
        current_gain_per_kelvin=_INA219_GAIN_PER_KELVIN,
        bus_gain=5e-3,
        bus_gain_per_kelvin=_INA219_GAIN_PER_KELVIN,
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
# At the range of 163.84 mV.
_INA228: Final = ChipLimits(
    shunt_step_v=0.3125e-6,
    bus_step_v=195.3125e-6,
    noise_v=2e-6,  # an assumption: of one conversion, at each conversion time and in both ranges
    offset_v=1e-6,
    offset_at_v=48.0,
    offset_per_volt=0.02e-6,  # common-mode rejection, 154 dB
    offset_per_kelvin_v=0.01e-6,
    bus_offset_v=5e-3,
    bus_offset_per_kelvin_v=40e-6,
    current_gain=5e-4,
    current_gain_per_kelvin=20e-6,
    bus_gain=1e-3,
    bus_gain_per_kelvin=25e-6,
)
# The INA228's sister with 16 bits. Its offset is stated at 48 V and at 0 V: counted from 48 V it is never too small.
_INA238: Final = Chip(
    replace(
        _INA228,
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
    "ina228": Chip(_INA228, power_steps=3.2, turn_s=3.2e-3),
    "ina238": _INA238,
}


def chip_limits(chip: Chip, ohm: float, file: InstrumentFile | None, *, own_power: bool) -> dict[str, float]:
    """The settings that a chip's data sheet gives, at a resistor of `ohm`; `own_power`: the chip multiplies itself."""
    kelvin = KELVIN if file is None else file.room.kelvin_from(DATA_SHEET_CELSIUS)
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


# Conversion times by the fields of ADC_CONFIG, and the number of conversions of a mean.
_CONVERSION_S: Final = (50e-6, 84e-6, 150e-6, 280e-6, 540e-6, 1052e-6, 2074e-6, 4120e-6)
_MEAN_OF: Final = (1, 4, 16, 64, 128, 256, 512, 1024)
_BUS_BIT: Final = 9
_SHUNT_BIT: Final = 6
_FIELD: Final = 0x7
# The shunt is read after DIAG_ALRT, of 120 us at 400 kHz, in the midst of its own transfer of 140 us.
_READ_S: Final = 190e-6


def ina228_limits(info: Ina219Info) -> ChipLimits:
    """The data sheet's limits, with the steps and the noise of the meter's settings."""
    return replace(
        _INA228,
        shunt_step_v=info.shunt_lsb_uv * 1e-6,
        bus_step_v=info.bus_lsb_mv * 1e-3,
        noise_v=_INA228.noise_v / math.sqrt(mean_of(info)),
    )


def conversions_s(info: Ina219Info) -> tuple[float, float]:
    """How long one conversion of the shunt takes, and one of the bus."""
    shunt, bus = (info.adc_config >> bit & _FIELD for bit in (_SHUNT_BIT, _BUS_BIT))
    return _CONVERSION_S[shunt], _CONVERSION_S[bus]


def mean_of(info: Ina219Info) -> int:
    """Of how many conversions of each a reading is the mean."""
    return _MEAN_OF[info.adc_config & _FIELD]


def ina228_timing(info: Ina219Info) -> ChipTiming:
    """Shunt and bus take turns. Without a mean each reading is shown at once, with one when all have ended."""
    (shunt_s, bus_s), count = conversions_s(info), mean_of(info)
    turn_s = count * (shunt_s + bus_s)
    if count == 1:
        return ChipTiming(turn_s=turn_s, shunt_s=shunt_s, age_s=shunt_s / 2, read_s=_READ_S)
    return ChipTiming(turn_s=turn_s, shunt_s=turn_s - bus_s, age_s=(turn_s + bus_s) / 2, read_s=_READ_S)
