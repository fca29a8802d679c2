"""Limits of the errors of a supply or source meter that speaks SCPI: those that its instrument file states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fsjoule.meter.energy.instrument import SteadyErrors
from fsjoule.meter.protocol.scpi import AMPERES_OFFSET, AMPERES_SHARE, VOLTS_OFFSET, VOLTS_SHARE
from fsjoule.model import MarkSource, PlainInfo
from fsjoule.model.meter import READ_S

_SQRT3: Final = math.sqrt(3)


@dataclass(frozen=True, slots=True)
class Scpi:
    """The limits, each +-: shares of a reading, and offsets in V and A.

    Nobody knows when within a reading the instrument looked: a window's end may be off by the time between two.
    """

    volts_share: float
    volts_offset: float
    amperes_share: float
    amperes_offset: float
    mark_s: float
    sample_s: float
    shift_s: float = 0.0
    sharpening: float = 0.0

    @classmethod
    def of(cls, info: PlainInfo) -> Scpi:
        told = info.settings
        return cls(
            volts_share=told[VOLTS_SHARE],
            volts_offset=told[VOLTS_OFFSET],
            amperes_share=told[AMPERES_SHARE],
            amperes_offset=told[AMPERES_OFFSET],
            mark_s=told[READ_S],
            sample_s=max(told[READ_S], info.tick_us * 1e-6),
        )

    def steady(self, volts: float, amperes: float) -> SteadyErrors:
        """See `Instrument`. The offset of the voltage counts as rounding of the bus, as it weighs with the current."""
        return SteadyErrors(
            shunt_rounding_w=0.0,
            bus_rounding_w=self.volts_offset * amperes / _SQRT3,
            offset_w=self.amperes_offset * volts / _SQRT3,
            gain=math.hypot(self.volts_share, self.amperes_share) / _SQRT3,
            shunt=0.0,
        )


def errors(info: PlainInfo, marks: MarkSource) -> Scpi:
    """See `fsjoule.meter.instruments.Errors`. Marks are the host's."""
    del marks
    return Scpi.of(info)
