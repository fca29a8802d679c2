"""What the uncertainty of fsjoule's own meter takes from its chip, and an INA228's limits and times.

Sources: TI SLYS022A (INA228-Q1), section 1, whose maxima are the limits here: offset, gain and common mode of the
shunt; its bus has the limits of the INA238-Q1 (June 2021), the same chip with 16 bits. TI SBOSA20 (INA228), section 7:
steps, times, averaging. docs/energy.md lists every number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.model import Ina219Info


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


# Conversion times by the fields of ADC_CONFIG, and the number of conversions of a mean.
_CONVERSION_S: Final = (50e-6, 84e-6, 150e-6, 280e-6, 540e-6, 1052e-6, 2074e-6, 4120e-6)
_MEAN_OF: Final = (1, 4, 16, 64, 128, 256, 512, 1024)
_BUS_BIT: Final = 9
_SHUNT_BIT: Final = 6
_FIELD: Final = 0x7
# The shunt is read after DIAG_ALRT, of 120 us at 400 kHz, in the midst of its own transfer of 140 us.
_READ_S: Final = 190e-6

# At the range of 163.84 mV.
INA228: Final = ChipLimits(
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


def ina228_limits(info: Ina219Info) -> ChipLimits:
    """The data sheet's limits, with the steps and the noise of the meter's settings."""
    return replace(
        INA228,
        shunt_step_v=info.shunt_lsb_uv * 1e-6,
        bus_step_v=info.bus_lsb_mv * 1e-3,
        noise_v=INA228.noise_v / math.sqrt(mean_of(info)),
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
