"""Limits of the errors of fsjoule's own meter: from data sheets before a calibration, the remainder after it.

`chips.py` has the numbers of both chips. Those that an INA219's settings choose are here: TI SBOS448G, section 7.5.
docs/energy.md lists every number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy.chips import (
    CHIPS,
    DATA_SHEET_CELSIUS,
    KELVIN,
    ChipLimits,
    ChipTiming,
    ina228_limits,
    ina228_timing,
)
from fsjoule.meter.energy.instrument import SteadyErrors
from fsjoule.model import CurrentMonitor, Ina219Info, MarkSource
from fsjoule.model.instrument_file import InstrumentFile, Shunt

_SQRT3: Final = math.sqrt(3)
# Offset voltage at the shunt, by range in mV; at 25 degrees and 12 V on the bus.
_OFFSET_LIMIT_V: Final = {40: 100e-6, 80: 125e-6, 160: 150e-6, 320: 200e-6}
# An assumption: a bus within a tenth of its voltage at the calibration.
_BUS_CHANGE: Final = 0.1
# How long a zero calibration takes samples; the rate is taken to be that of then.
_ZERO_S: Final = 2
# The meter refuses a gain calibration whose two points are closer than this fraction of the range.
_SPAN_OF_RANGE: Final = 0.25

# Steps of a converter with 9, 10, 11 and 12 bits in units of a raw sample, by the lowest two bits of its field in
# CONFIG. Bit 3 of the field selects averages of 12-bit conversions.
_STEPS: Final = (8, 4, 2, 1)
_AVERAGED: Final = 0x8
_BADC_SHIFT: Final = 7
_SADC_SHIFT: Final = 3

# Conversion times of 9 to 12 bits, typical (TI SBOS448G, table 5); each of 2^n averaged conversions has 12 bits.
_CONVERSION_S: Final = (84e-6, 148e-6, 276e-6, 532e-6)
# The shunt is read after bus and power, of 120 us each at 400 kHz, in the midst of its own transfer.
_READ_S: Final = 300e-6
# A byte at 115200 baud, at whose end its mark gets its time.
_BYTE_S: Final = 10 / 115200
# What a mark may be late beside that: the interrupt of a byte or an edge; a command through the host and a USB-serial
# adapter. A mark for an emulated meter passes several programs of a busy host.
_LATE_S: Final = {
    MarkSource.LINE: 50e-6,
    MarkSource.RISING: 50e-6,
    MarkSource.FALLING: 50e-6,
    MarkSource.HOST: 5e-3,
}
_LATE_EMULATED_S: Final = 2e-3


@dataclass(frozen=True, slots=True)
class Ina219:
    """Limits of error, each +- and rectangular; only `reference` and `noise_v` are not.

    In volts at the shunt: `shunt_rounding_v` (half a step of its converter), `offset_v`, and `noise_v`, the standard
    deviation of a reading. `offset_per_volt` adds to the offset for each volt between the bus and `offset_bus_v`; None
    is the bus at the zero calibration. In volts of the bus: `bus_rounding_v`. As fractions of the power: `gain` (both
    converters), `shunt` (the resistor) and `reference` (the calibration's source). `mark_s` limits the delay of a mark.
    `sample_s` is the displacement of a sample, because the chip does not convert the same part of every tick: that of a
    rectangle with the same standard deviation. `shift_s` is known of both, and is made good, as is the smear of a
    window's ends on average (`sharpening`). `ohm` is the resistor.
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
    ohm: float
    shift_s: float
    sharpening: float = 0.0
    noise_v: float = 0.0

    @classmethod
    def of(cls, info: Ina219Info, marks: MarkSource = MarkSource.LINE) -> Ina219:
        """The limits of a meter with this info, for marks from one source. MeasurementInvalid for an unknown chip."""
        chip, timing = _chip(info)
        shunt_rounding_v, bus_rounding_v = chip.shunt_step_v / 2, chip.bus_step_v / 2
        zeroed, gained = info.calibration.zero_date > 0, info.calibration.gain_date > 0
        offset_v = _zero_v(info, chip) if zeroed else chip.offset_v
        # A slope between two rounded readings of the shunt, or two limits of the data sheet, each with its drift.
        span_v = _SPAN_OF_RANGE * info.shunt_range_mv * 1e-3
        gains = (math.sqrt(2) * shunt_rounding_v / span_v,) if gained else (chip.current_gain, chip.bus_gain)
        shunt = (None if info.file is None else info.file.shunt) or Shunt(ohm=info.shunt_uohm * 1e-6)
        gain_kelvin = _kelvin(info.file, calibrated=gained)
        # The calibration compared the reference with a rounded reading of the bus, whose offset it took for gain.
        bus_v = (
            math.hypot(math.sqrt(2) * bus_rounding_v, _BUS_CHANGE * chip.bus_offset_v)
            if gained
            else math.hypot(bus_rounding_v, chip.bus_offset_v)
        )
        return cls(
            shunt_rounding_v=shunt_rounding_v,
            bus_rounding_v=math.hypot(bus_v, chip.bus_offset_per_kelvin_v * gain_kelvin),
            offset_v=math.hypot(offset_v, chip.offset_per_kelvin_v * _kelvin(info.file, calibrated=zeroed)),
            offset_bus_v=None if zeroed else chip.offset_at_v,
            offset_per_volt=chip.offset_per_volt,
            gain=math.hypot(*gains, chip.current_gain_per_kelvin * gain_kelvin, chip.bus_gain_per_kelvin * gain_kelvin),
            shunt=shunt.drift_ppm_per_kelvin * 1e-6 * gain_kelvin if gained else shunt.tolerance_percent * 1e-2,
            reference=info.calibration.gain_uncertainty_ppm * 1e-6 if gained else 0.0,
            mark_s=max(_LATE_S[marks], _LATE_EMULATED_S if info.simulated else 0.0),
            sample_s=math.hypot(*_widths_s(info, timing)) / 2,
            ohm=info.shunt_uohm * 1e-6,
            shift_s=_shown_late_s(info, timing) - (_BYTE_S if marks is MarkSource.LINE and not info.simulated else 0.0),
            sharpening=_sharpening(info, timing),
            noise_v=chip.noise_v,
        )

    def steady(self, volts: float, amperes: float) -> SteadyErrors:
        """See `Instrument`."""
        return SteadyErrors(
            shunt_rounding_w=self.shunt_rounding_v / self.ohm * volts / _SQRT3,
            bus_rounding_w=self.bus_rounding_v * amperes / _SQRT3,
            offset_w=self.offset_at(volts) / self.ohm * volts / _SQRT3,
            gain=math.hypot(self.gain / _SQRT3, self.reference),
            shunt=self.shunt / _SQRT3,
            noise_w=self.noise_v / self.ohm * volts,
        )

    def offset_at(self, bus_v: float) -> float:
        """Limit of the offset, in volts at the shunt, at `bus_v` on the bus."""
        change_v = _BUS_CHANGE * bus_v if self.offset_bus_v is None else bus_v - self.offset_bus_v
        return math.hypot(self.offset_v, self.offset_per_volt * change_v)


def _kelvin(file: InstrumentFile | None, *, calibrated: bool) -> float:
    """How far the meter may be from the temperature for which its limits hold."""
    if file is None:
        return KELVIN  # around 25 degrees, or the calibration's temperature
    if not calibrated:
        return file.room.kelvin_from(DATA_SHEET_CELSIUS)
    return file.room.kelvin_from(None if file.calibration is None else file.calibration.celsius)


def _zero_v(info: Ina219Info, chip: ChipLimits) -> float:
    """The offset that a zero calibration leaves: its mean is rounded, and has the noise of its samples.

    The noise is a standard deviation, which as a rectangle has the half width sqrt 3 of it.
    """
    return math.hypot(chip.shunt_step_v / 2, _SQRT3 * chip.noise_v / math.sqrt(_ZERO_S * info.rate_hz))


def _step(field: int) -> int:
    return 1 if field & _AVERAGED else _STEPS[field & 0x3]


def _chip(info: Ina219Info) -> tuple[ChipLimits, ChipTiming]:
    if info.chip is CurrentMonitor.INA228:
        return ina228_limits(info), ina228_timing(info)
    if info.chip is CurrentMonitor.INA219:
        return _limits(info), _timing(info)
    raise MeasurementInvalid(
        "energy", ["this version of fsjoule does not know the meter's chip, nor its errors: update fsjoule"]
    )


def _limits(info: Ina219Info) -> ChipLimits:
    return replace(
        CHIPS["ina219"].limits,
        shunt_step_v=info.shunt_lsb_uv * 1e-6 * _step(info.adc_config >> _SADC_SHIFT),
        bus_step_v=info.bus_lsb_mv * 1e-3 * _step(info.adc_config >> _BADC_SHIFT),
        offset_v=_OFFSET_LIMIT_V.get(info.shunt_range_mv, _OFFSET_LIMIT_V[320]),
    )


def _timing(info: Ina219Info) -> ChipTiming:
    shunt_s = _conversion_s(info.adc_config >> _SADC_SHIFT)
    turn_s = shunt_s + _conversion_s(info.adc_config >> _BADC_SHIFT)
    return ChipTiming(turn_s=turn_s, shunt_s=shunt_s, age_s=shunt_s / 2, read_s=_READ_S)


def _shown_late_s(info: Ina219Info, timing: ChipTiming) -> float:
    """How much later than the truth the middle of a tick is that shows a power.

    At the end of a tick the meter reads the newest conversion of the shunt. One ends once in each turn of shunt and
    bus, so that it is half a turn old on average, and the power is that of its middle.
    """
    age_s = timing.turn_s / 2 + timing.age_s
    return age_s - info.tick_us * 1e-6 / 2 - (0.0 if info.simulated else timing.read_s)


def _sharpening(info: Ina219Info, timing: ChipTiming) -> float:
    """See `Instrument`: that a step at a mark is neither spread into the window nor out of it, on average.

    A window's energy loses half of the mean distance between a moment and the sample that shows it, at each step;
    windows a tick away lose less of it.
    """
    widths_s = _widths_s(info, timing)
    here_s, beside_s = (_mean_distance(at_s, widths_s) for at_s in (0.0, info.tick_us * 1e-6))
    return here_s / (beside_s - here_s) / 2


def _widths_s(info: Ina219Info, timing: ChipTiming) -> tuple[float, float, float]:
    """The widths of three uniform distances whose sum lies between a moment and the sample that shows it.

    Where in its tick the moment lies, where in the turn of shunt and bus the tick ends, and where in the conversion
    the moment lies.
    """
    return info.tick_us * 1e-6, timing.turn_s, timing.shunt_s


def _mean_distance(at: float, widths: tuple[float, float, float]) -> float:
    """The mean of |at + x|, where x is the sum of three numbers that are uniform in +- half of their widths.

    It is the third difference of the third antiderivative of |x|, which is x^3 |x| / 24.
    """
    total = 0.0
    for signs in product((-1, 1), repeat=3):
        edge = at + sum(sign * width for sign, width in zip(signs, widths, strict=True)) / 2
        total += math.prod(signs) * edge**3 * abs(edge) / 24
    return total / math.prod(widths)


def _conversion_s(field: int) -> float:
    return _CONVERSION_S[3] * 2 ** (field & 0x7) if field & _AVERAGED else _CONVERSION_S[field & 0x3]
