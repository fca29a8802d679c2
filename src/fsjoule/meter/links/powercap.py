"""Energy counters of this computer's processor: the kernel's powercap class, as Intel's and AMD's RAPL fill it.

Each zone is a folder below /sys/class/powercap, or below the folder that FSJOULE_POWERCAP names. An address may also be
the folder's full path.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fsjoule.errors import MeterError
from fsjoule.meter.links.found import Found
from fsjoule.meter.links.polled import Ask, PolledMeter
from fsjoule.meter.protocol.powercap import POWERCAP, RANGE_UJ, UPDATE_US, CounterTrace
from fsjoule.model import PlainInfo

_FOLDER: Final = "FSJOULE_POWERCAP"
_DEFAULT_FOLDER: Final = "/sys/class/powercap"
_ENERGY: Final = "energy_uj"
_RANGE: Final = "max_energy_range_uj"
_RATE_HZ: Final = 100
_UPDATE_US: Final = 1000.0
_PATIENCE_S: Final = 2.0
_HINT: Final = "fsjoule meter list shows the counters; only root may read them unless an administrator allows it"


def find() -> list[Found]:
    """The zones of this computer that have an energy counter."""
    return [_found(folder.name) for folder in sorted(_folder().glob("*")) if (folder / _ENERGY).exists()]


def meter(name: str) -> PowercapMeter:
    """The meter of a zone. Raises MeterError."""
    return PowercapMeter(name)


def _found(name: str) -> Found:
    address, where = f"powercap:{name}", "this computer's processor"
    try:
        info = _info(name)
        _read(_folder() / name / _ENERGY)
    except MeterError as error:
        return Found(address, where, why_not=error.what)
    return Found(address, where, info.serial_number, info)


class PowercapMeter(PolledMeter):
    """The meter of one zone, which is read 100 times a second. Raises MeterError if there is no such zone."""

    def __init__(self, name: str) -> None:
        info = _info(name)
        path = _folder() / name / _ENERGY
        _read(path)  # raises at once if it may not be read
        super().__init__(info, f"the counter {path}", lambda: _begun(path, info), 1 / _RATE_HZ)


def _begun(path: Path, info: PlainInfo) -> tuple[CounterTrace, Ask]:
    """Raises MeterError unless the counter counts: a virtual machine's may stand still."""
    before, deadline = _read(path), time.monotonic() + _PATIENCE_S
    while _read(path) == before:
        if time.monotonic() > deadline:
            raise MeterError(
                f"the counter {path} stands still", hint="a virtual machine's counters may do so: use another"
            )
        time.sleep(1 / _RATE_HZ)
    trace = CounterTrace(info)

    def ask() -> Callable[[], None]:
        begin_ns = time.monotonic_ns()
        energy_uj = _read(path)
        time_us = (begin_ns + time.monotonic_ns()) // 2000
        return lambda: trace.add(time_us, energy_uj)

    return trace, ask


def _folder() -> Path:
    return Path(os.environ.get(_FOLDER, _DEFAULT_FOLDER))


def _info(name: str) -> PlainInfo:
    folder = _folder() / name
    if ("/" in name and not name.startswith("/")) or not (folder / _ENERGY).exists():
        raise MeterError(f"there is no energy counter {folder}", hint=_HINT)
    return PlainInfo(
        instrument=POWERCAP,
        firmware=platform.release(),
        serial_number=f"{platform.node()} {folder.name} {_text(folder / 'name')}".strip(),
        rate_hz=_RATE_HZ,
        measures_voltage=False,
        simulated=(folder / "simulated").exists(),
        settings={UPDATE_US: _UPDATE_US, RANGE_UJ: float(_read(folder / _RANGE))},
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
