"""Limits of error that an instrument's info states: from its instrument file, or from a data sheet.

An instrument's info carries the limits that it was measured with, so that a later table changes no older figure. An
instrument that the host asks again and again needs no more: its row names this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fsjoule.meter.energy.instrument import SteadyErrors
from fsjoule.model import MarkSource, PlainInfo
from fsjoule.model.instrument_file import Accuracy
from fsjoule.model.meter import READ_S, TURN_S

# The limits in an instrument's settings, each +-: shares of a reading, offsets in V and A.
VOLTS_SHARE: Final = "volts_share"
VOLTS_OFFSET: Final = "volts_offset"
AMPERES_SHARE: Final = "amperes_share"
AMPERES_OFFSET: Final = "amperes_offset"
# What some have beside these: the offset's change with the voltage, in A/V, and the voltage from which it
# counts; the steps of the converters, in V, A and W; the share of a resistor beside the instrument.
AMPERES_PER_VOLT: Final = "amperes_per_volt"
OFFSET_AT_V: Final = "offset_at_volts"
VOLTS_STEP: Final = "volts_step"
AMPERES_STEP: Final = "amperes_step"
WATTS_STEP: Final = "watts_step"
RESISTOR_SHARE: Final = "resistor_share"

# The settings without which there are no errors to state.
NEEDED: Final = frozenset({READ_S, VOLTS_SHARE, VOLTS_OFFSET, AMPERES_SHARE, AMPERES_OFFSET})

_SQRT3: Final = math.sqrt(3)


def stated_limits(known: Accuracy) -> dict[str, float]:
    """The settings that an instrument file's [accuracy] gives: those of the whole instrument."""
    return {
        VOLTS_SHARE: known.volts_percent * 1e-2,
        VOLTS_OFFSET: known.volts_offset,
        AMPERES_SHARE: known.amperes_percent * 1e-2,
        AMPERES_OFFSET: known.amperes_offset,
    }


def steady_errors(limits: Mapping[str, float], volts: float, amperes: float) -> SteadyErrors:
    """The errors of a steady load by `limits`.

    The offset of the voltage counts as rounding of the bus, as it weighs with the current. A voltage or a current that
    is not known (NaN) matters only where a limit weighs with it.
    """
    offset_a = math.hypot(limits[AMPERES_OFFSET], _of(limits.get(AMPERES_PER_VOLT), volts - limits.get(OFFSET_AT_V, 0)))
    return SteadyErrors(
        shunt_rounding_w=math.hypot(_of(limits.get(AMPERES_STEP), volts), limits.get(WATTS_STEP, 0.0)) / 2 / _SQRT3,
        bus_rounding_w=_of(math.hypot(limits[VOLTS_OFFSET], limits.get(VOLTS_STEP, 0.0) / 2), amperes) / _SQRT3,
        offset_w=_of(offset_a, volts) / _SQRT3,
        gain=math.hypot(limits[VOLTS_SHARE], limits[AMPERES_SHARE]) / _SQRT3,
        shunt=limits.get(RESISTOR_SHARE, 0.0) / _SQRT3,
    )


def _of(limit: float | None, size: float) -> float:
    return limit * size if limit else 0.0


@dataclass(frozen=True, slots=True)
class Stated:
    """An `Instrument` with the limits of its settings."""

    limits: Mapping[str, float]
    mark_s: float
    sample_s: float
    shift_s: float = 0.0
    sharpening: float = 0.0

    def steady(self, volts: float, amperes: float) -> SteadyErrors:
        """See `Instrument`."""
        return steady_errors(self.limits, volts, amperes)


def errors(info: PlainInfo, marks: MarkSource) -> Stated:
    """See `fsjoule.meter.instruments.Errors`. Marks are the host's, whose clock the readings have, too.

    Nobody knows when between two questions the instrument looked (`READ_S`). A chip that converts on its own shows the
    mean over its newest turn (`TURN_S`), which ended up to a turn ago: the reading has the time of a turn before the
    question, so that it is displaced by up to half a turn.
    """
    del marks
    read_s, turn_s = info.settings[READ_S], info.settings.get(TURN_S, 0.0)
    return Stated(info.settings, mark_s=read_s, sample_s=max(turn_s / 2 + read_s, info.tick_us * 1e-6))
