"""Limits of the errors of a Joulescope: those that its instrument file states, and its clock's.

Its accuracy depends on the range of the current. The instrument file has the limits of the range that the load needs,
from the User's Guide of the model.
"""

from __future__ import annotations

from typing import Final

from fsjoule.meter.energy.stated import Stated
from fsjoule.model import MarkSource, PlainInfo

# An edge of an input is sampled with the current, at 1 MHz or more. A mark of the host is a time of its clock, which
# the driver compares with the instrument's through USB; "typically within 100 us", its maker says of the JS220.
_EDGE_S: Final = 2e-6
_HOST_S: Final = 1e-3
_LATE_S: Final = {MarkSource.RISING: _EDGE_S, MarkSource.FALLING: _EDGE_S}


def errors(info: PlainInfo, marks: MarkSource) -> Stated:
    """See `fsjoule.meter.instruments.Errors`. A tick's energy is spread evenly in it (`sample_s`)."""
    return Stated(info.settings, mark_s=_LATE_S.get(marks, _HOST_S), sample_s=info.tick_us * 1e-6)
