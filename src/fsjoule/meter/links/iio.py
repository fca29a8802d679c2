"""Power monitors of the kernel's IIO and hwmon, of this computer, behind an iiod, or at USB: INA226, ACME's probes.

An address is libiio's URI and a device: `ip:192.168.1.5/ina226`, `local:/iio:device0`, `usb:1.5.0`. The device may be
left out where a context has one power monitor. `FSJOULE_IIO` lists further URIs for `fsjoule meter list`, with commas.

Units are those of the kernel's ABI (Documentation/ABI/testing/sysfs-bus-iio): mV, mA and mW after scale and offset;
hwmon's are mV and uW. The driver ina2xx-adc shows the shunt's voltage as voltage0, the bus's as voltage1. Its power is
a register of 25 (INA219: 20) steps of the current, cut off; older kernels count the current itself in whole mA. So
the power is made of the two voltages and the resistor.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from fsjoule.errors import ConfigError, MeterError
from fsjoule.host.extras import need
from fsjoule.meter.energy.chips import CHIPS, OHM, chip_limits
from fsjoule.meter.energy.stated import stated_limits
from fsjoule.meter.instrument_files import file_of, read_instrument_file
from fsjoule.meter.instruments import SearchResult
from fsjoule.meter.links.recording import Ask, PolledMeter
from fsjoule.meter.protocol.polled import SampleTrace
from fsjoule.model import PlainInfo
from fsjoule.model.instrument_file import InstrumentFile
from fsjoule.model.meter import READ_S, TURN_S

_URIS: Final = "FSJOULE_IIO"
_TIMEOUT_MS: Final = 2000
_TIMED_READINGS: Final = 5
# Faster ticks would be lost whenever the host is busy for a moment.
_MOST_HZ: Final = 100
_LEAST_PAUSE_S: Final = 0.002
_SAME_OHM: Final = 1e-3
_AVAHI: Final = Path("/run/avahi-daemon/socket")
_LOCAL: Final = ("/sys/bus/iio/devices", "/sys/class/hwmon")
_DOCS: Final = "docs/meter.md#power-monitors-of-the-kernel"
_SCAN_HINT: Final = f"name the address of the context instead: {_DOCS}"
_HINT: Final = f"fsjoule meter list shows the power monitors; {_DOCS} has addresses"
# How a context says that it is emulated.
_SIMULATED: Final = "fsjoule,simulated"

IIO: Final = "iio"
# By channel: the names of its attributes.
Channels = Mapping[str, frozenset[str]]
# An attribute of a channel, as a number.
Read = Callable[[str, str], float]

_HWMON: Final = "hwmon"
_LARGEST: Final = {"ina219": 4000, "ina220": 4000}  # at the PGA's gain of 1
_LARGEST_16: Final = 32767
# Of hwmon's chips, whose power only is read: the shunt's voltage at the end of the range that the kernel sets, in V.
_FULL_V: Final = {"ina219": 0.32, "ina220": 0.32, "ina226": 0.08192, "ina228": 0.16384, "ina238": 0.16384}
# Steps of the power and of the bus hide the end itself.
_NEAR: Final = 0.995


class IioMeter(PolledMeter):
    """The meter of one device, which is asked as often as it has something new, up to 100 times a second.

    Raises ConfigError without libiio, or if nothing is known of its accuracy; MeterError if there is no such device.
    """

    def __init__(self, name: str) -> None:
        uri, wanted = _parts(name)
        device = _device(_context(uri), uri, wanted)
        with _errors(uri):
            info, source, pause_s = _described(device, uri)
        super().__init__(info, f"{device.label} at {uri}", lambda: _begun(device, source, info, uri), pause_s)


def meter(name: str) -> IioMeter:
    """The meter at an address. Raises ConfigError, MeterError."""
    return IioMeter(name)


def find() -> list[SearchResult]:
    """The power monitors of all contexts in reach: here, at USB, announced by DNS-SD, and those of `FSJOULE_IIO`.

    A context is only read: other clients of an iiod, and the kernel's buffers, notice nothing.
    """
    if importlib.util.find_spec("iio") is None:
        return []
    try:
        uris = list(dict.fromkeys(_uris(_library())))
    except ConfigError as error:
        return [SearchResult("iio:", "libiio", why_not=error.what)]
    return [found for uri in uris for found in _found(uri)]


def _uris(iio: Any) -> Iterator[str]:  # noqa: ANN401 - a module without types
    yield from (uri.strip() for uri in os.environ.get(_URIS, "").split(",") if uri.strip())
    if any(list(Path(folder).glob("*")) for folder in _LOCAL):
        yield "local:"
    for backend in ("usb", "ip"):
        # Without avahi libiio 0.24 would fail, and write so to standard error.
        if backend != "ip" or _AVAHI.exists():
            yield from _scanned(iio, backend)


def _scanned(iio: Any, backend: str) -> list[str]:  # noqa: ANN401 - a module without types
    """The URIs that one of libiio's backends finds, as pylibiio's `scan_contexts` does with all of them at once."""
    scan = iio._create_scan_context(backend.encode(), 0)  # noqa: SLF001 - explained
    try:
        infos = cast("Any", ctypes.POINTER(iio._ContextInfoPtr)())  # noqa: SLF001 - as above
        count: int = iio._get_context_info_list(scan, ctypes.byref(infos))  # noqa: SLF001 - as above
        uris = [iio._context_info_get_uri(infos[at]).decode() for at in range(count)]  # noqa: SLF001 - as above
        iio._context_info_list_free(infos)  # noqa: SLF001 - as above
    except OSError as error:
        raise MeterError(
            f"libiio cannot look for {backend} contexts: {error.strerror or error}", hint=_SCAN_HINT
        ) from error
    finally:
        iio._destroy_scan_context(scan)  # noqa: SLF001 - as above
    return uris


def _found(uri: str) -> list[SearchResult]:
    where = "this computer" if uri.startswith("local") else uri
    try:
        context = _context(uri)
    except MeterError as error:
        return [SearchResult(f"iio:{uri}", where, why_not=error.what)]
    devices = [device for device in map(_Device, context.devices) if device.is_power_monitor()]
    return [
        SearchResult(f"iio:{uri}/{each.id}", where, f"{each.name or each.label} {_serial(context, uri)}")
        for each in devices
    ]


class _Device:
    """A device of a context."""

    def __init__(self, device: Any) -> None:  # noqa: ANN401 - a class without types
        self._device = device
        self.id = str(device.id)
        self.name = str(device.name or "")
        self.label = str(getattr(device, "label", None) or self.name or self.id)
        self.channels: dict[str, Any] = {each.id: each for each in device.channels if not each.output}

    def is_power_monitor(self) -> bool:
        return is_power_monitor(self.id, self._names(), has_shunt=self._attribute("shunt_resistor") is not None)

    def source(self) -> Source | None:
        return source_of(self.id, self.name, self._names(), self.ohm(), self.read)

    def ohm(self) -> float | None:
        attribute = self._attribute("shunt_resistor")
        return None if attribute is None else ohms(attribute.value)

    def turn_s(self) -> float | None:
        """How long the chip takes for a new reading of all channels; None if the kernel does not tell."""
        if (rate := self._number("sampling_frequency")) is not None and rate > 0:
            return 1 / rate
        interval_ms = self._number("update_interval")
        return None if interval_ms is None else interval_ms * 1e-3

    def read(self, channel: str, attribute: str) -> float:
        return float(self.channels[channel].attrs[attribute].value)

    @property
    def context(self) -> Any:  # noqa: ANN401 - a class without types
        return self._device.context

    def _names(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset(channel.attrs) for name, channel in self.channels.items()}

    def _number(self, name: str) -> float | None:
        attribute = self._attribute(name)
        return None if attribute is None else float(attribute.value)

    def _attribute(self, name: str) -> Any | None:  # noqa: ANN401 - a class without types
        """An attribute of the whole device, which libiio also shows with its direction, or with each channel."""
        for attributes in (self._device.attrs, *(channel.attrs for channel in self.channels.values())):
            for each in (name, f"in_{name}"):
                if each in attributes:
                    return attributes[each]
        return None


class _errors:  # noqa: N801 - a context manager, used as a function
    """What libiio raises, as MeterError: it has no errors of its own."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise MeterError(
                f"the IIO context {self._uri} does not answer: {error.strerror or error}", transient=True, hint=_HINT
            ) from error
        if isinstance(error, ValueError):
            raise MeterError(f"the IIO context {self._uri} returned no number: {error}", hint=_HINT) from error


def _parts(name: str) -> tuple[str, str]:
    """The URI and the device's name, label or id; "" for the only one."""
    uri, _, device = name.rpartition("/")
    return (uri, device) if uri else (name, "")


def _library() -> Any:  # noqa: ANN401 - a module without types
    try:
        need("iio", "iio")
        import iio  # noqa: PLC0415 - an extra of fsjoule
    except (AttributeError, OSError, TypeError) as error:  # its ctypes find no library, or another one
        raise ConfigError("libiio is not installed", hint="apt-get install libiio0") from error
    return iio


def _context(uri: str) -> Any:  # noqa: ANN401 - a class without types
    iio = _library()
    full = uri if ":" in uri else f"{uri}:"
    try:
        context = iio.Context(full)
        context.set_timeout(_TIMEOUT_MS)
    except OSError as error:
        raise MeterError(f"there is no IIO context at {uri}: {error.strerror or error}", hint=_HINT) from error
    return context


def _device(context: Any, uri: str, wanted: str) -> _Device:  # noqa: ANN401 - a class without types
    with _errors(uri):
        devices = [_Device(each) for each in context.devices]
        monitors = [each for each in devices if each.is_power_monitor()]
    chosen = [each for each in monitors if not wanted or wanted in (each.id, each.name, each.label)]
    if len(chosen) == 1:
        return chosen[0]
    listed = ", ".join(f"iio:{uri}/{each.id} ({each.label})" for each in monitors) or "none"
    if chosen:
        raise ConfigError(f"there is more than one power monitor at {uri}", hint=f"name one: {listed}")
    if any(wanted in (each.id, each.name, each.label) for each in devices):
        raise MeterError(f"{wanted} at {uri} measures no power", hint=f"power monitors there: {listed}")
    raise MeterError(f"there is no power monitor {wanted!r} at {uri}", hint=f"power monitors there: {listed}")


def _described(device: _Device, uri: str) -> tuple[PlainInfo, Source, float]:
    source = device.source()
    assert source is not None, "a power monitor has one"
    serial = f"{device.label} {device.id} {_serial(device.context, uri)}"
    file = read_instrument_file(serial)
    limits = _limits(device, source, file, serial)
    turn_s = device.turn_s() or CHIPS[device.name].turn_s
    begin_s = time.monotonic()
    for _ in range(_TIMED_READINGS):
        source.reading(device.read)
    asked_s = (time.monotonic() - begin_s) / _TIMED_READINGS
    # More often than the chip has something new, so that no turn is left out.
    pause_s = max(_LEAST_PAUSE_S, min(turn_s, 1 / _MOST_HZ) - asked_s)
    rate_hz = max(1, min(_MOST_HZ, int(1 / (pause_s + asked_s))))
    info = PlainInfo(
        instrument=IIO,
        firmware=f"{device.name or device.id} libiio {'.'.join(map(str, device.context.version[:2]))}",
        serial_number=serial,
        rate_hz=rate_hz,
        measures_voltage=True,
        simulated=_SIMULATED in device.context.attrs,
        settings=limits | {TURN_S: round(turn_s, 6), READ_S: 1 / rate_hz},
    )
    return info, source, pause_s


def _limits(device: _Device, source: Source, file: InstrumentFile | None, serial: str) -> dict[str, float]:
    """Raises ConfigError if neither an instrument file nor a data sheet is known, or the resistor is another."""
    hint = f"write it from the data sheet into {file_of(serial)}: {_DOCS}"
    ohm = device.ohm()
    if file is not None and file.shunt is not None:
        resistor_ohm = file.shunt.ohm
        if ohm is not None and abs(resistor_ohm / ohm - 1) > _SAME_OHM:
            raise ConfigError(
                f"the kernel counts with {ohm:g} Ohm, the instrument file says {resistor_ohm:g}",
                file=file_of(serial),
                hint="write the resistor to in_shunt_resistor of the device, or into its device tree",
            )
        ohm = resistor_ohm
    if file is not None and file.accuracy is not None:
        if device.turn_s() is None and device.name not in CHIPS:
            raise ConfigError(f"{serial} does not tell how often it measures", hint=hint)
        return stated_limits(file.accuracy)
    if device.name not in CHIPS:
        raise ConfigError(f"nothing is known of the accuracy of {serial}", hint=hint)
    if ohm is None:
        raise ConfigError(f"nothing is known of the resistor of {serial}", hint=f"[shunt] ohm = ...: {hint}")
    return chip_limits(CHIPS[device.name], ohm, file, own_power=source.own_power) | {OHM: ohm}


def _serial(context: Any, uri: str) -> str:  # noqa: ANN401 - a class without types
    """What tells this context from others: the serial number of its hardware, or else its address."""
    return str(context.attrs.get("hw_serial") or uri)


def _begun(device: _Device, source: Source, info: PlainInfo, uri: str) -> tuple[SampleTrace, Ask]:
    trace = SampleTrace(info)
    # A reading is the mean over the newest turn of the chip, which ended up to a turn ago: it shows the load of a turn
    # before, on average.
    turn_us = round(info.settings[TURN_S] * 1e6)

    def ask() -> Callable[[], None]:
        begin_ns = time.monotonic_ns()
        with _errors(uri):
            volts, amperes, beyond = source.reading(device.read)
        time_us = (begin_ns + time.monotonic_ns()) // 2000 - turn_us
        return lambda: trace.add(time_us, volts, amperes, clipped=beyond)

    return trace, ask


@dataclass(frozen=True, slots=True)
class IioQuantity:
    """A channel's value in V, A or W: (raw + offset) x scale x unit, or a finished one where `raw` is its attribute.

    `largest` is the size of a raw value that says "out of range"; None: nothing says it.
    """

    channel: str
    raw: str
    scale: float
    offset: float = 0.0
    largest: float | None = None

    def value(self, read: Read) -> tuple[float, bool]:
        """The value, and whether it is out of range."""
        raw = read(self.channel, self.raw)
        return (raw + self.offset) * self.scale, self.largest is not None and abs(raw) >= self.largest


@dataclass(frozen=True, slots=True)
class Source:
    """Where a device's volts and amperes come from; `own_power`: `current` is a power, which the chip multiplied.

    `most_a`: from this current on it is out of range; None: the current's quantity says it, or nothing does.
    """

    volts: IioQuantity
    current: IioQuantity
    own_power: bool
    most_a: float | None = None

    def reading(self, read: Read) -> tuple[float, float, bool]:
        """Volts, amperes, and whether one of them is out of range."""
        current, beyond = self.current.value(read)
        volts, above = self.volts.value(read)
        amperes = (current / volts if volts else 0.0) if self.own_power else current
        return volts, amperes, beyond or above or (self.most_a is not None and abs(amperes) >= self.most_a)


def is_power_monitor(device_id: str, channels: Channels, *, has_shunt: bool) -> bool:
    """Whether `source_of` can make power of these channels."""
    return _chosen(device_id, channels, has_shunt=has_shunt) is not None


def source_of(device_id: str, name: str, channels: Channels, ohm: float | None, read: Read) -> Source | None:
    """How to read a device; `ohm` is the resistor that the driver counts with, None if it tells none."""
    chosen = _chosen(device_id, channels, has_shunt=ohm is not None)
    if chosen is None:
        return None
    volts, current = chosen
    if device_id.startswith(_HWMON):
        most_a = _NEAR * _FULL_V[name] / ohm if ohm and name in _FULL_V else None
        return Source(
            IioQuantity(volts, "input", 1e-3), IioQuantity(current, "input", 1e-6), own_power=True, most_a=most_a
        )
    shunt = ohm if ohm is not None and current.startswith("voltage") else None
    return Source(
        _quantity(volts, channels, read, 1e-3),
        _quantity(current, channels, read, 1e-3 / (shunt or 1.0), _largest(name, current, channels, read, shunt)),
        own_power=current.startswith("power"),
    )


def ohms(text: str) -> float:
    """The driver's `shunt_resistor`: in Ohm with a decimal point, in microohm without one (older kernels)."""
    return float(text) if "." in text else float(text) * 1e-6


def _chosen(device_id: str, channels: Channels, *, has_shunt: bool) -> tuple[str, str] | None:
    """The channels of the voltage, and of the current, the shunt's voltage or the power."""
    readable = [name for name, attributes in channels.items() if {"raw", "input"} & attributes]
    if device_id.startswith(_HWMON):
        return ("in1", "power1") if {"in1", "power1"} <= set(readable) else None
    if has_shunt and {"voltage0", "voltage1"} <= set(readable):
        return "voltage1", "voltage0"
    voltages, currents, powers = (
        [name for name in readable if name.startswith(kind)] for kind in ("voltage", "current", "power")
    )
    if len(voltages) == 1 and len(currents) == 1:
        return voltages[0], currents[0]
    return (voltages[0], powers[0]) if len(voltages) == 1 and len(powers) == 1 else None


def _quantity(name: str, channels: Channels, read: Read, unit: float, largest: float | None = None) -> IioQuantity:
    if "raw" not in channels[name]:
        return IioQuantity(name, "input", unit)
    scale, offset = (
        read(name, each) if each in channels[name] else default for each, default in (("scale", 1.0), ("offset", 0.0))
    )
    return IioQuantity(name, "raw", scale * unit, offset, largest)


def _largest(name: str, channel: str, channels: Channels, read: Read, shunt: float | None) -> float | None:
    if shunt is None:
        return None
    if name not in _LARGEST:
        return _LARGEST_16
    gain = read(channel, "hardwaregain") if "hardwaregain" in channels[channel] else 1 / 8
    return _LARGEST[name] / gain
