"""Limits of the errors of a supply or source meter that speaks SCPI: those that its instrument file states."""

from __future__ import annotations

from fsjoule.meter.energy.stated import Stated
from fsjoule.model import MarkSource, PlainInfo
from fsjoule.model.meter import READ_S


def errors(info: PlainInfo, marks: MarkSource) -> Stated:
    """See `fsjoule.meter.instruments.Errors`. Marks are the host's.

    Nobody knows when within a reading the instrument looked: a window's end may be off by the time between two.
    """
    del marks
    read_s = info.settings[READ_S]
    return Stated(info.settings, mark_s=read_s, sample_s=max(read_s, info.tick_us * 1e-6))
