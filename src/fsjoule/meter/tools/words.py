"""A meter's info, and the uncertainty that it leaves, in words and as JSON documents. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from typing import Any, Final

from fsjoule.meter.energy import instrument_of
from fsjoule.meter.energy.chips import conversions_s, mean_of
from fsjoule.meter.links.notices import notices
from fsjoule.meter.protocol.frames import InfoFrame
from fsjoule.model import CurrentMonitor, Ina219Info, InputCounts, MeterCalibration, MeterInfo

_DAY_S: Final = 86400
_HOUR_S: Final = 3600
# CONFIG of the INA219 (TI SBOS448G, table 5): the ADCs' settings, at bits 7 and 3; bit 13 doubles the bus range.
_BUS_ADC_BIT: Final = 7
_SHUNT_ADC_BIT: Final = 3
_ADC_MASK: Final = 0x0F
_AVERAGED: Final = 0x08
_LEAST_BITS: Final = 9


def adc_text(info: Ina219Info) -> str:
    """The chip, with resolution and averaging of its two converters."""
    if info.chip is CurrentMonitor.INA228:
        count = mean_of(info)
        shunt_s, bus_s = conversions_s(info)
        return f"INA228, 20 bits: shunt {count} x {shunt_s * 1e6:.0f} us, bus {count} x {bus_s * 1e6:.0f} us"
    if info.chip is CurrentMonitor.UNKNOWN:
        return f"a chip that this version of fsjoule does not know (0x{info.adc_config:04X}): update fsjoule"
    shunt, bus = (_adc(info.adc_config >> bit & _ADC_MASK) for bit in (_SHUNT_ADC_BIT, _BUS_ADC_BIT))
    return f"shunt {shunt}, bus {bus}"


def _adc(setting: int) -> str:
    if setting <= _AVERAGED:
        return f"{_LEAST_BITS + (setting & 0x03 if setting < _AVERAGED else 3)} bits"
    return f"{1 << (setting - _AVERAGED)} x 12 bits"


def bus_text(info: Ina219Info) -> str:
    """How far the bus voltage goes."""
    return "unknown" if info.chip is CurrentMonitor.UNKNOWN else f"up to {info.bus_range_v} V"


def full_scale_a(info: Ina219Info) -> float:
    return info.shunt_range_mv * 1e-3 / (info.shunt_uohm * 1e-6)


def zero_text(calibration: MeterCalibration, now_s: float) -> str:
    when = date_text(calibration.zero_date, now_s)
    return f"{when}: offset {calibration.shunt_offset_nv / 1e3:+.2f} uV" if calibration.zero_date else when


def gain_text(calibration: MeterCalibration, now_s: float) -> str:
    when = date_text(calibration.gain_date, now_s)
    if not calibration.gain_date:
        return when
    return (
        f"{when}: current {calibration.current_gain_ppm:+d} ppm, bus {calibration.bus_gain_ppm:+d} ppm, "
        f"known to {calibration.gain_uncertainty_ppm} ppm (k=1)"
    )


def inputs_text(inputs: InputCounts) -> str:
    """What arrived badly since power-up."""
    return (
        f"{inputs.marks_damaged} damaged; errors: {inputs.mark_framing} framing, {inputs.mark_overruns} overrun, "
        f"{inputs.mark_noise} noise; {inputs.events_lost} bytes or edges lost"
    )


def date_text(date: int, now_s: float) -> str:
    if not date:
        return "never"
    return f"{datetime.fromtimestamp(date, UTC):%Y-%m-%d %H:%M} UTC, {_age(now_s - date)}"


def _age(seconds: float) -> str:
    if seconds < -_HOUR_S:
        return "in the future: a clock was wrong"
    if seconds < _HOUR_S:
        return "just now"
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.0f} hours ago"
    return f"{seconds / _DAY_S:.0f} days ago"


def as_document(frame: InfoFrame, today: date) -> dict[str, Any]:
    """A meter's info and status as a JSON document; dates are ISO 8601, or null for never."""
    document = asdict(frame.info) | asdict(frame.status)
    return document | {
        "calibration": calibration_document(frame.info),
        "adc": adc_text(frame.info),
        "notices": notices(frame, today),
    }


def calibration_document(info: Ina219Info) -> dict[str, Any]:
    document = asdict(info.calibration)
    for name in ("zero_date", "gain_date"):
        document[name] = iso_date(document[name])
    return document


def iso_date(date: int) -> str | None:
    """A date from the meter as ISO 8601; None for never."""
    return datetime.fromtimestamp(date, UTC).isoformat() if date else None


@dataclass(frozen=True, slots=True)
class ExpectedUncertainty:
    """Standard uncertainties (k=1) of the power at a load, in watts, one per cause."""

    shunt_rounding_w: float
    bus_rounding_w: float
    offset_w: float
    gain_w: float
    shunt_w: float

    @property
    def total_w(self) -> float:
        """The root sum of squares (JCGM 100:2008, 5.1.2)."""
        return math.hypot(*(getattr(self, field.name) for field in fields(self)))

    def as_document(self, volts: float, amperes: float) -> dict[str, Any]:
        return {"volts": volts, "amperes": amperes, "total_w": self.total_w} | asdict(self)

    def text(self, volts: float, amperes: float) -> str:
        watts = volts * amperes
        share = f", {self.total_w / watts:.2%}" if watts else ""
        return f"{self.total_w * 1e3:.2f} mW{share} at {volts:g} V, {amperes:g} A (k=1)"

    def causes(self) -> str:
        parts = {
            "offset": self.offset_w,
            "gain": self.gain_w,
            "resistor": self.shunt_w,
            "rounding": math.hypot(self.shunt_rounding_w, self.bus_rounding_w),
        }
        return ", ".join(f"{name} {watts * 1e3:.2f}" for name, watts in parts.items()) + " mW"


def expected(info: MeterInfo, volts: float, amperes: float) -> ExpectedUncertainty:
    """The uncertainty that a meter with this info leaves at a steady load."""
    errors, watts = instrument_of(info).steady(volts, abs(amperes)), abs(volts * amperes)
    return ExpectedUncertainty(
        shunt_rounding_w=errors.shunt_rounding_w,
        bus_rounding_w=errors.bus_rounding_w,
        offset_w=errors.offset_w,
        gain_w=watts * errors.gain,
        shunt_w=watts * errors.shunt,
    )
