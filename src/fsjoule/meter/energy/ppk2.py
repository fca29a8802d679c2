"""Limits of the errors of Nordic's Power Profiler Kit II: those of its user guide, or of its instrument file.

Source: PPK2 user guide, "Measurement accuracy" and "Measurement resolution". Nordic calls them typical. docs/energy.md
lists every number, and which of them are assumptions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fsjoule.meter.energy.instrument import SteadyErrors
from fsjoule.meter.protocol.ppk2 import SAMPLE_US, SOURCE
from fsjoule.model import MarkSource, PlainInfo

_SQRT3: Final = math.sqrt(3)
# Of the range from 50 mA to 1 A. The lower ranges have 10 %, but a small mean current may consist of large peaks.
_AMPERES_SHARE: Final = 0.15
# From a current on, the resolution there: a reading may be off by it.
_RESOLUTION_A: Final = ((50e-3, 1e-3), (5e-3, 50e-6), (500e-6, 5e-6), (50e-6, 0.5e-6), (0.0, 0.2e-6))
# Assumptions. Nordic states no limit of the output's voltage, and the ranges' resistors take up to 60 mV of it.
_SOURCE_SHARE: Final = 0.02
_BURDEN_V: Final = 0.06
# The voltage of an ampere meter's device was told and not measured. USB's tolerance: 4.75 to 5.25 V.
_TOLD_SHARE: Final = 0.05
# Edges are sampled with the current. Other marks are the host's; those of an emulator pass programs of a busy host.
_LATE_S: Final = {MarkSource.RISING: SAMPLE_US * 1e-6, MarkSource.FALLING: SAMPLE_US * 1e-6}
_LATE_HOST_S: Final = 5e-3
_LATE_EMULATED_S: Final = 2e-3


@dataclass(frozen=True, slots=True)
class Ppk2:
    """The limits, each +-: shares of voltage and current, offsets in V and A; None is the range's resolution.

    Each tick is the mean over all of its samples, so a change of the power may be displaced by a whole tick.
    """

    volts_share: float
    volts_offset: float
    amperes_share: float
    amperes_offset: float | None
    mark_s: float
    sample_s: float
    shift_s: float = 0.0
    sharpening: float = 0.0

    @classmethod
    def of(cls, info: PlainInfo, marks: MarkSource = MarkSource.RISING) -> Ppk2:
        late_s = max(_LATE_S.get(marks, _LATE_HOST_S), _LATE_EMULATED_S if info.simulated else 0.0)
        told = info.settings
        if "amperes_percent" in told:
            return cls(
                volts_share=told["volts_percent"] * 1e-2,
                volts_offset=told["volts_offset"],
                amperes_share=told["amperes_percent"] * 1e-2,
                amperes_offset=told["amperes_offset"],
                mark_s=late_s,
                sample_s=info.tick_us * 1e-6,
            )
        supplies = told[SOURCE] > 0
        return cls(
            volts_share=_SOURCE_SHARE if supplies else _TOLD_SHARE,
            volts_offset=_BURDEN_V,
            amperes_share=_AMPERES_SHARE,
            amperes_offset=None,
            mark_s=late_s,
            sample_s=info.tick_us * 1e-6,
        )

    def steady(self, volts: float, amperes: float) -> SteadyErrors:
        """See `Instrument`. The offset of the voltage counts as rounding of the bus, as it weighs with the current."""
        offset_a = self.amperes_offset
        if offset_a is None:
            offset_a = next(limit for least, limit in _RESOLUTION_A if amperes >= least)
        return SteadyErrors(
            shunt_rounding_w=0.0,
            bus_rounding_w=self.volts_offset * amperes / _SQRT3,
            offset_w=offset_a * volts / _SQRT3,
            gain=math.hypot(self.volts_share, self.amperes_share) / _SQRT3,
            shunt=0.0,
        )


def errors(info: PlainInfo, marks: MarkSource) -> Ppk2:
    """The errors of a PPK2 with this info, for marks from one source."""
    return Ppk2.of(info, marks)
