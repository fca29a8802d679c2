"""Calibration of a meter: zero at no load, gains from two points that a reference measures better."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

from fsjoule.errors import MeterError
from fsjoule.meter.instrument_files import write_instrument_file
from fsjoule.meter.links.client import CommandRefusedError, MeterClient
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand, ReplyStatus
from fsjoule.meter.tools.words import full_scale_a
from fsjoule.model import Ina219Info
from fsjoule.model.instrument_file import Calibrated, Certificate, InstrumentFile, Shunt

LOW: Final = 1
HIGH: Final = 2
_MOST_OFFSET_UV: Final = 400  # the chip's maximum; more is a load (docs/meter-protocol.md)
_LEAST_SPAN: Final = 0.25


@dataclass(frozen=True, slots=True)
class Zeroed:
    """The shunt's reading at no load."""

    offset_uv: float
    spread_uv: float
    samples: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference's reading of the load at one of the two points."""

    current_ua: int
    bus_uv: int
    uncertainty_ppm: int


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """The meter's uncalibrated reading at one of the two points."""

    number: int
    shunt_uv: float
    bus_mv: float
    samples: int


def zero(client: MeterClient) -> Zeroed:
    """Measure the offset at no load. Raises MeterError if there is a load, or if the meter cannot measure."""
    try:
        offset_nv, spread_nv, samples = client.command(MeterCommand.ZERO, commands.zero(int(time.time())))
    except CommandRefusedError as error:
        if error.status != ReplyStatus.REFUSED:
            raise
        read = f"the shunt reads {error.values[0] / 1e3:.0f} uV, and an offset is at most {_MOST_OFFSET_UV} uV"
        raise MeterError(f"no zero calibration: {read}", hint="disconnect the load and leave the supply on") from error
    return Zeroed(offset_nv / 1e3, spread_nv / 1e3, samples)


def gain(client: MeterClient, number: int, reference: Reference) -> CalibrationPoint:
    """Measure one of the two points, LOW first; the meter computes the gains with HIGH.

    Raises ConfigError for an impossible reference, MeterError with advice if the meter refuses.
    """
    payload = commands.gain(number, reference.current_ua, reference.bus_uv, reference.uncertainty_ppm, int(time.time()))
    try:
        shunt_nv, bus_uv, samples = client.command(MeterCommand.GAIN, payload)
    except CommandRefusedError as error:
        if error.status != ReplyStatus.REFUSED:
            raise
        info = client.receiver.wait_info().info
        wanted = reference.current_ua * 1e-6 * info.shunt_uohm
        read = f"the shunt reads {error.values[0] / 1e3:.0f} uV, by the reference it should read {wanted:.0f} uV"
        raise MeterError(
            f"no gain calibration: {read}" if error.values[2] else f"no gain calibration: {error.what}",
            hint=f"two points at least {full_scale_a(info) * _LEAST_SPAN:.3g} A apart, neither above "
            f"{full_scale_a(info):.3g} A, the low one first; a reading more than 5 % off means a wrong shunt value "
            f"({info.shunt_uohm * 1e-6:g} Ohm): fsjoule meter set --shunt",
        ) from error
    return CalibrationPoint(number, shunt_nv / 1e3, bus_uv / 1e3, samples)


def noted(info: Ina219Info, today: date, celsius: float | None, certificate: Certificate | None) -> Path:
    """Write into the meter's instrument file that it was calibrated; what the file says else stays.

    `celsius` is the room's temperature. Returns where the file is. Raises ConfigError, StorageError.
    """
    file = info.file or InstrumentFile(serial_number=info.serial_number, shunt=Shunt(ohm=info.shunt_uohm / 1e6))
    made = Calibrated(made=today, celsius=celsius)
    return write_instrument_file(replace(file, calibration=made, certificate=certificate or file.certificate))


def forget(client: MeterClient) -> None:
    client.command(MeterCommand.FORGET_CALIBRATION)
