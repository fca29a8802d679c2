"""Drivers that an environment file lacks, and resources that its place lacks: labgrid finds out at the board's use."""

from __future__ import annotations

import abc
from collections.abc import Collection
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


def missing_resources(environment: EnvironmentFile, offered: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The needs of drivers that neither the file nor its place meets. `offered`: the place's classes and names."""
    there = [target_factory.resources[cls] for cls in environment.resources]
    there += [target_factory.resources[cls] for cls, _ in offered if cls in target_factory.resources]
    names = {name for _, name in offered}
    found: list[str] = []
    for driver in environment.drivers:
        for role, wanted in target_factory.drivers[driver.cls].bindings.items():
            choices = _resources(wanted)
            if not choices:
                continue
            name = driver.bindings.get(role)
            foreign = len(environment.resources) == len(environment.places)  # all of the place
            if not any(issubclass(each, choices) for each in there) or (foreign and name and name not in names):
                named = f" named {name!r}" if name else ""
                kinds = " or ".join(sorted(choice.__name__ for choice in choices))
                found.append(f"{driver.cls} needs {kinds}{named}")
    return tuple(found)


def _choices(wanted: Any) -> tuple[type, ...]:  # noqa: ANN401 - labgrid's bindings have many types
    """Driver classes and protocols of which one is needed; none for an optional binding, or one to a resource."""
    classes = _classes(wanted)
    if any(one is None or issubclass(one, Resource) for one in classes):
        return ()
    return tuple(one for one in classes if issubclass(one, (Driver, abc.ABC)))


def _resources(wanted: Any) -> tuple[type, ...]:  # noqa: ANN401
    """Resource classes of which one is needed; none for an optional binding, or one that a driver may meet."""
    classes = _classes(wanted)
    return () if any(one is None or not issubclass(one, Resource) for one in classes) else tuple(classes)


def _classes(wanted: Any) -> list[Any]:  # noqa: ANN401
    value = wanted.value if isinstance(wanted, Driver.NamedBinding) else wanted
    each = value if isinstance(value, set) else {value}
    return [target_factory.class_from_string(one) if isinstance(one, str) else one for one in each]
