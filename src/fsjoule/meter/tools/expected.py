"""Expected uncertainty of a steady load's power: the instrument's part of `fsjoule.meter.energy`. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from fsjoule.meter.energy import instrument_of
from fsjoule.model import MeterInfo


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
