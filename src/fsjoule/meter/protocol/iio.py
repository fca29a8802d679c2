"""Attributes of an IIO or hwmon device become volts and amperes. Pure.

Units are those of the kernel's ABI (Documentation/ABI/testing/sysfs-bus-iio): mV, mA and mW after scale and offset;
hwmon's are mV and uW. The driver ina2xx-adc shows the shunt's voltage as voltage0, the bus's as voltage1. Its power is
a register of 25 (INA219: 20) steps of the current, cut off; older kernels count the current itself in whole mA. So
the power is made of the two voltages and the resistor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

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
