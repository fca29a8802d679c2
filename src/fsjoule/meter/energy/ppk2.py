"""Limits of the errors of Nordic's Power Profiler Kit II: those of its user guide, or of its instrument file.

Source: PPK2 user guide, "Measurement accuracy" and "Measurement resolution". Nordic calls them typical. docs/energy.md
lists every number, and which of them are assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fsjoule.meter.energy.instrument import InstrumentErrors, SteadyErrors
from fsjoule.meter.energy.stated import (
    AMPERES_OFFSET,
    AMPERES_SHARE,
    VOLTS_OFFSET,
    VOLTS_SHARE,
    Stated,
    steady_errors,
)
from fsjoule.meter.protocol.ppk2 import SAMPLE_US, SOURCE
from fsjoule.model import MarkSource, PlainInfo

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
class Ppk2(Stated):
    """Nordic's limits: the offset of the current is the resolution of its range."""

    def steady(self, volts: float, amperes: float) -> SteadyErrors:
        """See `InstrumentErrors`."""
        offset_a = next(limit for least, limit in _RESOLUTION_A if amperes >= least)
        return steady_errors({**self.limits, AMPERES_OFFSET: offset_a}, volts, amperes)


def errors(info: PlainInfo, marks: MarkSource) -> InstrumentErrors:
    """See `fsjoule.meter.instruments.Errors`.

    Each tick is the mean over all of its samples, so a change of the power may be displaced by a whole tick.
    """
    late_s = max(_LATE_S.get(marks, _LATE_HOST_S), _LATE_EMULATED_S if info.simulated else 0.0)
    tick_s = info.tick_us * 1e-6
    if AMPERES_SHARE in info.settings:
        return Stated(info.settings, mark_s=late_s, sample_s=tick_s)
    volts_share = _SOURCE_SHARE if info.settings[SOURCE] > 0 else _TOLD_SHARE
    nordics = {VOLTS_SHARE: volts_share, VOLTS_OFFSET: _BURDEN_V, AMPERES_SHARE: _AMPERES_SHARE}
    return Ppk2(nordics, mark_s=late_s, sample_s=tick_s)
