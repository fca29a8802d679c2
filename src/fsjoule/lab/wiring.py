"""Drivers that an environment file lacks: labgrid finds out only when a board is to be used."""

from __future__ import annotations

import abc
from typing import Any, Final

from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.resource import Resource

from fsjoule.lab.environment import EnvironmentFile, NamedDriver

_ADVICE: Final = {
    "PowerProtocol": "add NetworkPowerDriver: {} for an outlet",
    "ConsoleProtocol": "add SerialDriver with bindings: {port: default}",
    "FlasherProtocol": "add a flasher and its drivers, as SdMuxFlasher with USBSDMuxDriver and USBStorageDriver",
    "UBootDriver": "add UBootDriver with U-Boot's prompt, '\\n=> '",
    "ShellDriver": "add ShellDriver with the login's prompts",
    "USBSDMuxDriver": "add USBSDMuxDriver: {}, the mux of the card",
    "USBStorageDriver": "add USBStorageDriver: {}, the mux's card reader",
}


def missing_drivers(environment: EnvironmentFile) -> tuple[tuple[NamedDriver, str, str], ...]:
    """Bindings that no driver of the file can meet: the driver that has one, its words, and advice.

    Bindings to resources depend on the exporter, so they are not examined.
    """
    there = [target_factory.drivers[driver.cls] for driver in environment.drivers]
    found: list[tuple[NamedDriver, str, str]] = []
    for driver, cls in zip(environment.drivers, there, strict=True):
        for role, wanted in cls.bindings.items():
            choices = _choices(wanted)
            if choices and not any(issubclass(other, choice) for other in there for choice in choices):
                names = " or ".join(sorted(choice.__name__ for choice in choices))
                advice = next(
                    (_ADVICE[c.__name__] for c in choices if c.__name__ in _ADVICE), f"add {names} to drivers"
                )
                found.append((driver, f"{driver.cls} needs {names} ({role}), and no driver of the file is one", advice))
    return tuple(found)


def _choices(wanted: Any) -> tuple[type, ...]:  # noqa: ANN401 - labgrid's bindings have many types
    """Driver classes and protocols of which one is needed; none for an optional binding, or one to a resource."""
    value = wanted.value if isinstance(wanted, Driver.NamedBinding) else wanted
    each = value if isinstance(value, set) else {value}
    classes = [target_factory.class_from_string(one) if isinstance(one, str) else one for one in each]
    if any(one is None or issubclass(one, Resource) for one in classes):
        return ()
    return tuple(one for one in classes if issubclass(one, (Driver, abc.ABC)))
