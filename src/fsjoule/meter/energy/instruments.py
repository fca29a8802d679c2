"""The errors of a meter, by its info."""

from __future__ import annotations

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy.ina219 import Ina219
from fsjoule.meter.energy.instrument import HostStamped, InstrumentErrors
from fsjoule.meter.instruments import INSTRUMENTS
from fsjoule.model import Ina219Info, MarkSource, MeterInfo


def instrument_of(info: MeterInfo, marks: MarkSource = MarkSource.LINE) -> InstrumentErrors:
    """The errors of a meter, with marks from one source. Raises MeasurementInvalid for an unknown instrument."""
    if isinstance(info, Ina219Info):
        return Ina219.of(info, marks)
    kind = INSTRUMENTS.get(info.instrument)
    if kind is None:
        what = f"this version of fsjoule does not know the instrument {info.instrument!r}, nor its errors"
        raise MeasurementInvalid("energy", [f"{what}: update fsjoule"])
    found = kind.errors().errors(info, marks)
    # A line of a UART that no instrument of these hears itself: the host stamps it.
    return HostStamped(found) if marks is MarkSource.LINE else found
