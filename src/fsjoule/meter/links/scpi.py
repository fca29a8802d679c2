"""Supplies and source meters that speak SCPI, through VISA: USB, GPIB, serial ports and the network.

For slow, absolute checks: an instrument answers some ten times a second. `FSJOULE_VISA` names PyVISA's backend, by
default pyvisa-py.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

from fsjoule.errors import ConfigError, MeterError
from fsjoule.host.extras import need
from fsjoule.meter.energy.stated import stated_limits
from fsjoule.meter.instrument_files import file_of, read_instrument_file
from fsjoule.meter.instruments import SearchResult
from fsjoule.meter.links.recording import Ask, PolledMeter
from fsjoule.meter.protocol.polled import SampleTrace
from fsjoule.model import PlainInfo
from fsjoule.model.meter import READ_S

_NAME: Final = "scpi"
_BACKEND: Final = "FSJOULE_VISA"
_DEFAULT_BACKEND: Final = "@py"
_TIMEOUT_MS: Final = 2000
_IDENTITY_FIELDS: Final = 4
_TIMED_READINGS: Final = 5
# Faster ticks would be lost whenever the host is busy for a moment.
_MOST_HZ: Final = 20
# SCPI-99, volume 2, 18.2: a reading of what the output gives, with the ranges as they are set.
_VOLTS: Final = "MEASure:VOLTage?"
_AMPERES: Final = "MEASure:CURRent?"
_DOCS: Final = "docs/meter.md#instruments-that-speak-scpi"
_HINT: Final = f"is its remote control on, and does no other program use it? {_DOCS} has addresses"
_SIMULATED: Final = "SIM-"
_INSTRUMENTS: Final = "?*::INSTR"
_SERIAL: Final = "ASRL"
_USB: Final = re.compile(r"USB\d*::[^:]+::[^:]+::(?P<serial>[^:]+)")


def meter(name: str) -> ScpiMeter:
    """The meter at a VISA resource. Raises ConfigError, MeterError."""
    return ScpiMeter(name)


def find() -> list[SearchResult]:
    """The resources that VISA lists, by name. None is opened: a question would disturb who talks to it.

    Serial ports are left out, since any device may be there.
    """
    if importlib.util.find_spec("pyvisa") is None:
        return []
    pyvisa = _pyvisa()
    try:
        # pyvisa-py warns of each way to search for which it lacks a library.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            manager = pyvisa.ResourceManager(os.environ.get(_BACKEND) or _DEFAULT_BACKEND)
            try:
                listed: Sequence[str] = manager.list_resources(_INSTRUMENTS)
            finally:
                manager.close()
    except (pyvisa.Error, OSError, ValueError) as error:
        raise MeterError(f"VISA cannot list its instruments: {error}", hint=_HINT) from error
    return [_found(resource) for resource in sorted(listed) if not resource.startswith(_SERIAL)]


def _found(resource: str) -> SearchResult:
    """USB tells the serial number in the resource's name (VPP-4.3, 4.3.1.1); other ways have the address alone."""
    usb = _USB.match(resource)
    name = usb.group("serial") if usb else resource
    return SearchResult(f"visa:{resource}", "an instrument that VISA lists", name, device=(name,) if usb else ())


class ScpiMeter(PolledMeter):
    """The meter at a VISA resource, which is read as fast as it answers.

    Raises ConfigError without PyVISA, or if no instrument file states its accuracy; MeterError if it does not answer.
    """

    def __init__(self, resource: str) -> None:
        self._line = line = _ScpiLine(resource)
        try:
            info = _info(line)
        except BaseException:
            line.close()
            raise
        super().__init__(info, f"the instrument at {resource}", lambda: _begun(line, info), 0.0)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._line.close()


class _ScpiLine:
    """An open VISA resource."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        pyvisa = _pyvisa()
        self._errors: tuple[type[Exception], ...] = (pyvisa.Error, OSError, UnicodeDecodeError)
        try:
            self._manager = pyvisa.ResourceManager(os.environ.get(_BACKEND) or _DEFAULT_BACKEND)
            self._device: Any = self._manager.open_resource(resource, timeout=_TIMEOUT_MS)
        except (*self._errors, ValueError) as error:
            raise MeterError(f"the instrument at {resource} cannot be opened: {error}", hint=_HINT) from error
        self._device.read_termination = self._device.write_termination = "\n"

    def ask(self, question: str) -> str:
        try:
            return str(self._device.query(question)).strip()
        except self._errors as error:
            raise MeterError(
                f"the instrument at {self.resource} does not answer {question}: {error}", transient=True, hint=_HINT
            ) from error

    def number(self, question: str) -> float:
        text = self.ask(question)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        # SCPI-99, volume 1, 7.2.1.4 and 5: 9.9E37 is infinity, 9.91E37 is not a number.
        if not abs(number) < 9.8e37:  # noqa: PLR2004 - explained
            raise MeterError(f"the instrument at {self.resource} answers {question} with {text[:40]!r}", hint=_HINT)
        return number

    def close(self) -> None:
        for each in (self._device, self._manager):
            try:
                each.close()
            except self._errors:
                continue  # it is gone, which was told


def _pyvisa() -> Any:  # noqa: ANN401 - a module without types
    need("visa", "pyvisa")
    import pyvisa  # noqa: PLC0415 - an extra of fsjoule

    return pyvisa


def _info(line: _ScpiLine) -> PlainInfo:
    identity = [part.strip() for part in line.ask("*IDN?").split(",")]
    if len(identity) != _IDENTITY_FIELDS or not identity[2]:
        said = ",".join(identity)[:80]
        raise MeterError(f"the instrument at {line.resource} does not say what it is: {said!r}", hint=_HINT)
    maker, model, serial, firmware = identity
    file = read_instrument_file(serial)
    if file is None or file.accuracy is None:
        raise ConfigError(
            f"nothing is known of the accuracy of {maker} {model}, serial number {serial}",
            hint=f"write it from the data sheet into {file_of(serial)}: {_DOCS}",
        )
    # The slowest one, so that the uncertainty of a window's ends is not too small.
    read_s = max(_read_s(line) for _ in range(_TIMED_READINGS))
    return PlainInfo(
        instrument=_NAME,
        firmware=f"{maker} {model} {firmware}",
        serial_number=serial,
        rate_hz=max(1, min(_MOST_HZ, int(1 / read_s))),
        measures_voltage=True,
        simulated=serial.startswith(_SIMULATED),
        settings=stated_limits(file.accuracy) | {READ_S: math.ceil(read_s * 1e4) / 1e4},
    )


def _read_s(line: _ScpiLine) -> float:
    begin_s = time.monotonic()
    line.number(_VOLTS)
    line.number(_AMPERES)
    return time.monotonic() - begin_s


def _begun(line: _ScpiLine, info: PlainInfo) -> tuple[SampleTrace, Ask]:
    trace = SampleTrace(info)

    def ask() -> Callable[[], None]:
        begin_ns = time.monotonic_ns()
        volts, amperes = line.number(_VOLTS), line.number(_AMPERES)
        time_us = (begin_ns + time.monotonic_ns()) // 2000
        return lambda: trace.add(time_us, volts, amperes)

    return trace, ask
