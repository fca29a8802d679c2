"""Limits of the errors of a processor's own energy counter (RAPL), read through the kernel's powercap class.

No maker states a limit of the counter's error: `_GAIN` is an assumption, which docs/energy.md names as one. The counter
moves once in an update interval (1 ms: Intel SDM, volume 3B, 15.10.3), so a reading may be that old.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fsjoule.meter.energy.instrument import SteadyErrors
from fsjoule.meter.protocol.powercap import UPDATE_US
from fsjoule.model import MarkSource, PlainInfo

_GAIN: Final = 0.05
_SQRT3: Final = math.sqrt(3)


@dataclass(frozen=True, slots=True)
class Powercap:
    """`mark_s`: a window's end is off by the age of the counter. `sample_s`: energy between two readings is spread."""

    mark_s: float
    sample_s: float
    shift_s: float = 0.0
    sharpening: float = 0.0

    def steady(self, volts: float, amperes: float) -> SteadyErrors:
        """See `Instrument`. The counter knows neither voltage nor current."""
        del volts, amperes
        return SteadyErrors(0.0, 0.0, 0.0, gain=_GAIN / _SQRT3, shunt=0.0)


def errors(info: PlainInfo, marks: MarkSource) -> Powercap:
    """See `fsjoule.meter.instruments.Errors`. Marks are the host's."""
    del marks
    return Powercap(mark_s=info.settings[UPDATE_US] * 1e-6, sample_s=info.tick_us * 1e-6)
