"""The instruments whose errors are known, by the meter's info."""

from __future__ import annotations

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy.ina219 import Ina219
from fsjoule.meter.energy.instrument import Instrument
from fsjoule.meter.energy.powercap import Powercap
from fsjoule.meter.energy.scpi import Scpi
from fsjoule.meter.protocol.powercap import POWERCAP
from fsjoule.meter.protocol.scpi import SCPI
from fsjoule.model import Ina219Info, MarkSource, MeterInfo


def instrument_of(info: MeterInfo, marks: MarkSource = MarkSource.LINE) -> Instrument:
    """The errors of a meter, with marks from one source. Raises MeasurementInvalid for an unknown instrument."""
    if isinstance(info, Ina219Info):
        return Ina219.of(info, marks)
    if info.instrument == POWERCAP:
        return Powercap.of(info)
    if info.instrument == SCPI:
        return Scpi.of(info)
    raise MeasurementInvalid(
        "energy", [f"this version of fsjoule does not know the instrument {info.instrument!r}, nor its errors"]
    )
