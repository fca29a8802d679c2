"""Energy counters of this computer's processor: the kernel's powercap class, as Intel's and AMD's RAPL fill it.

Each zone is a folder below /sys/class/powercap, or below the folder that FSJOULE_POWERCAP names. An address may also be
the folder's full path, or `packages`: the sum of all processors of a computer with several.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from fsjoule.errors import MeterError
from fsjoule.meter.instruments import SearchResult
from fsjoule.meter.links.recording import Ask, PolledMeter
from fsjoule.meter.protocol.powercap import POWERCAP, RANGE_UJ, UPDATE_US, CounterTrace, is_package
from fsjoule.model import PlainInfo

_FOLDER: Final = "FSJOULE_POWERCAP"
_DEFAULT_FOLDER: Final = "/sys/class/powercap"
_ENERGY: Final = "energy_uj"
_RANGE: Final = "max_energy_range_uj"
_RATE_HZ: Final = 100
_UPDATE_US: Final = 1000.0
_ALL: Final = "packages"
_PATIENCE_S: Final = 2.0
_HINT: Final = "fsjoule meter list shows the counters; only root may read them unless an administrator allows it"


def find() -> list[SearchResult]:
    """The zones of this computer that have an energy counter; before them the sum of several processors."""
    names = [folder.name for folder in sorted(_folder().glob("*")) if (folder / _ENERGY).exists()]
    return [_found(name) for name in ([_ALL] if len(_packages()) > 1 else []) + names]


def meter(name: str) -> PowercapMeter:
    """The meter of a zone. Raises MeterError."""
    return PowercapMeter(name)


def _found(name: str) -> SearchResult:
    address, where = f"powercap:{name}", f"this computer's processor{'s' if name == _ALL else ''}"
    try:
        info = _info(name)
        for zone in _zones(name):
            _read(zone / _ENERGY)
    except MeterError as error:
        return SearchResult(address, where, why_not=error.what)
    part = _part(name)
    return SearchResult(address, f"{where}, {part}" if part else where, info.serial_number, info)


class PowercapMeter(PolledMeter):
    """The meter of one zone, or of all processors, which is read 100 times a second. Raises MeterError without one."""

    def __init__(self, name: str) -> None:
        info, zones = _info(name), _zones(name)
        paths = [zone / _ENERGY for zone in zones]
        for path in paths:
            _read(path)  # raises at once if it may not be read
        ranges = [float(_read(zone / _RANGE)) for zone in zones]
        part = _part(name)
        faults = (f"{zones[0].name} is {part}: powercap:{_ALL} is their sum",) if part else ()
        what = f"the counter {' + '.join(map(str, paths))}"
        super().__init__(info, what, lambda: _begun(paths, CounterTrace(info, ranges), faults), 1 / _RATE_HZ)


def _begun(paths: Sequence[Path], trace: CounterTrace, faults: tuple[str, ...]) -> tuple[CounterTrace, Ask]:
    """Raises MeterError unless each counter counts: a virtual machine's may stand still."""
    trace.faults = faults
    for path in paths:
        before, deadline = _read(path), time.monotonic() + _PATIENCE_S
        while _read(path) == before:
            if time.monotonic() > deadline:
                raise MeterError(
                    f"the counter {path} stands still", hint="a virtual machine's counters may do so: use another"
                )
            time.sleep(1 / _RATE_HZ)

    def ask() -> Callable[[], None]:
        begin_ns = time.monotonic_ns()
        energies_uj = [_read(path) for path in paths]
        time_us = (begin_ns + time.monotonic_ns()) // 2000
        return lambda: trace.add(time_us, *energies_uj)

    return trace, ask


def _packages() -> list[Path]:
    """The zones of whole processors, each once: Intel shows the same counters through its MMIO interface, too."""
    zones = [folder for folder in sorted(_folder().glob("*")) if (folder / _ENERGY).exists()]
    named = {_text(zone / "name"): zone for zone in zones if (zone / "name").exists()}
    return [zone for name, zone in sorted(named.items()) if is_package(name)]


def _part(name: str) -> str:
    """Of how many processors a zone is one, in words; empty for the only one, and for what is none."""
    packages = _packages()
    label = _folder() / name / "name"
    is_one = name != _ALL and label.exists() and is_package(_text(label))
    return f"one of {len(packages)} processors" if is_one and len(packages) > 1 else ""


def _zones(name: str) -> list[Path]:
    """Raises MeterError if there is none."""
    zones = _packages() if name == _ALL else [_folder() / name]
    if ("/" in name and not name.startswith("/")) or not zones or not all((each / _ENERGY).exists() for each in zones):
        raise MeterError(f"there is no energy counter {_folder() / name}", hint=_HINT)
    return zones


def _folder() -> Path:
    return Path(os.environ.get(_FOLDER, _DEFAULT_FOLDER))


def _info(name: str) -> PlainInfo:
    zones = _zones(name)
    labels = " + ".join(f"{zone.name} {_text(zone / 'name')}" for zone in zones)
    return PlainInfo(
        instrument=POWERCAP,
        firmware=platform.release(),
        serial_number=f"{platform.node()} {labels}".strip(),
        rate_hz=_RATE_HZ,
        measures_voltage=False,
        simulated=any((zone / "simulated").exists() for zone in zones),
        settings={UPDATE_US: _UPDATE_US, RANGE_UJ: min(float(_read(zone / _RANGE)) for zone in zones)},
    )


def _read(path: Path) -> int:
    text = _text(path)
    if not text.isdecimal():
        raise MeterError(f"{path} holds no count: {text[:40]!r}", hint=_HINT)
    return int(text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise MeterError(f"{path} cannot be read: {error.strerror or error}", hint=_HINT) from error
