"""What is known of the meter's errors: limits from data sheets before a calibration, what is left of them after it.

Sources: TI SBOS448G (INA219), section 7.5, electrical characteristics of grade A: what stands there as a maximum is
taken as the limit. docs/energy.md lists every number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fsjoule.model import MarkSource, MeterInfo

# Offset voltage at the shunt, by range in mV; at 25 degrees and 12 V on the bus.
_OFFSET_LIMIT_V: Final = {40: 100e-6, 80: 125e-6, 160: 150e-6, 320: 200e-6}
_OFFSET_AT_V: Final = 12.0
_OFFSET_PER_VOLT: Final = 10e-6  # common-mode rejection, 100 dB
_CURRENT_LIMIT: Final = 0.005
_BUS_LIMIT: Final = 0.005
_SHUNT_LIMIT: Final = 0.01  # the resistor of the usual boards; the chip's data sheet does not know it
# From 25 to 85 degrees the limit of the error grows from 0.5 % to 1 %; the offset drifts by 0.1 uV a degree.
_DRIFT_PER_KELVIN: Final = 0.005 / 60
_OFFSET_PER_KELVIN_V: Final = 0.1e-6
_SHUNT_PER_KELVIN: Final = 75e-6  # Vishay WSL, document 30100
# What is assumed of the lab: 10 degrees around 25 degrees, or around the day of the calibration, and a bus within a
# tenth of its voltage of that day.
_KELVIN: Final = 10.0
_BUS_CHANGE: Final = 0.1
# The meter refuses a gain calibration whose two points are closer together than this part of the range.
_SPAN_OF_RANGE: Final = 0.25

# Steps of a converter with 9, 10, 11 and 12 bits in units of a raw sample, by the lowest two bits of its field of
# CONFIG. Bit 3 of the field averages conversions of 12 bits.
_STEPS: Final = (8, 4, 2, 1)
_AVERAGED: Final = 0x8
_BADC_SHIFT: Final = 7
_SADC_SHIFT: Final = 3

# How late a mark may be: a byte at 115200 baud; the interrupt of an edge; a command on its way through the host and a
# USB-serial adapter. What an emulated meter is told passes several programs of a busy host.
_LATE_S: Final = {
    MarkSource.LINE: 10 / 115200,
    MarkSource.RISING: 50e-6,
    MarkSource.FALLING: 50e-6,
    MarkSource.HOST: 5e-3,
}
_LATE_EMULATED_S: Final = 2e-3


@dataclass(frozen=True, slots=True)
class Instrument:
    """Limits of error, each +- and of a rectangular distribution, but for `reference`, a standard uncertainty.

    In volts at the shunt: `shunt_rounding_v`, half a step of its converter; `offset_v`, and `offset_per_volt` more for
    each volt that the bus is off `offset_bus_v`, or off its voltage at the zero calibration where that is None. In
    volts of the bus: `bus_rounding_v`. As fractions of the power: `gain` of both converters, `shunt` (the resistor),
    and `reference`, with which the gains were calibrated. `mark_s` bounds how late a mark may be, and `sample_s` how
    far a sample may be off: what the chip converts of a tick is neither its middle nor the same in every tick.
    """

    shunt_rounding_v: float
    bus_rounding_v: float
    offset_v: float
    offset_bus_v: float | None
    offset_per_volt: float
    gain: float
    shunt: float
    reference: float
    mark_s: float
    sample_s: float

    @classmethod
    def of(cls, info: MeterInfo, marks: MarkSource = MarkSource.LINE) -> Instrument:
        """The limits of a meter that says this of itself, for marks of one source."""
        shunt_rounding_v = info.shunt_lsb_uv * 1e-6 * _step(info.adc_config >> _SADC_SHIFT) / 2
        bus_rounding_v = info.bus_lsb_mv * 1e-3 * _step(info.adc_config >> _BADC_SHIFT) / 2
        zeroed, gained = info.calibration.zero_date > 0, info.calibration.gain_date > 0
        offset_v = shunt_rounding_v if zeroed else _OFFSET_LIMIT_V.get(info.shunt_range_mv, _OFFSET_LIMIT_V[320])
        # A slope between two rounded readings of the shunt, or two limits of the data sheet; and the drift of both.
        span_v = _SPAN_OF_RANGE * info.shunt_range_mv * 1e-3
        gains = (math.sqrt(2) * shunt_rounding_v / span_v,) if gained else (_CURRENT_LIMIT, _BUS_LIMIT)
        drift = _DRIFT_PER_KELVIN * _KELVIN
        return cls(
            shunt_rounding_v=shunt_rounding_v,
            # The reading of the bus that the reference was compared with was rounded, too.
            bus_rounding_v=math.sqrt(2) * bus_rounding_v if gained else bus_rounding_v,
            offset_v=math.hypot(offset_v, _OFFSET_PER_KELVIN_V * _KELVIN),
            offset_bus_v=None if zeroed else _OFFSET_AT_V,
            offset_per_volt=_OFFSET_PER_VOLT,
            gain=math.hypot(*gains, drift, drift),
            shunt=_SHUNT_PER_KELVIN * _KELVIN if gained else _SHUNT_LIMIT,
            reference=info.calibration.gain_uncertainty_ppm * 1e-6 if gained else 0.0,
            mark_s=max(_LATE_S[marks], _LATE_EMULATED_S if info.simulated else 0.0),
            sample_s=1 / info.rate_hz,
        )

    def offset_at(self, bus_v: float) -> float:
        """Limit of the offset, in volts at the shunt, with `bus_v` on the bus."""
        change_v = _BUS_CHANGE * bus_v if self.offset_bus_v is None else bus_v - self.offset_bus_v
        return math.hypot(self.offset_v, self.offset_per_volt * change_v)


def _step(field: int) -> int:
    """Step of a converter in units of a raw sample."""
    return 1 if field & _AVERAGED else _STEPS[field & 0x3]
