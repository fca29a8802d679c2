"""Energy counters of this computer's processor: the kernel's powercap class, as Intel's and AMD's RAPL fill it.

Each zone is a folder below /sys/class/powercap, or below the folder that FSJOULE_POWERCAP names.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.powercap import POWERCAP, RANGE_UJ, UPDATE_US, CounterTrace
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace

PREFIX: Final = "powercap:"
_FOLDER: Final = "FSJOULE_POWERCAP"
_DEFAULT_FOLDER: Final = "/sys/class/powercap"
_ENERGY: Final = "energy_uj"
_RANGE: Final = "max_energy_range_uj"
_RATE_HZ: Final = 100
_UPDATE_US: Final = 1000.0
_PATIENCE_S: Final = 2.0
_HINT: Final = "fsjoule meter list shows the counters; only root may read them unless an administrator allows it"


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone with its counter, or the reason why it cannot be read."""

    address: str
    where: str
    info: PlainInfo | None
    why_not: str = ""


def zones() -> list[Zone]:
    """The zones of this computer that have an energy counter."""
    return [_zone(folder.name) for folder in sorted(_folder().glob("*")) if (folder / _ENERGY).exists()]


def _zone(name: str) -> Zone:
    address = f"{PREFIX}{name}"
    try:
        info = _info(name)
        _read(_folder() / name / _ENERGY)
    except MeterError as error:
        return Zone(address, "this computer's processor", None, error.what)
    return Zone(address, "this computer's processor", info)


class PowercapMeter:
    """ports.Meter of one zone, for a `with` statement; a thread reads the counter 100 times a second.

    The clock of its traces is the host's monotonic one. Raises MeterError if there is no such zone.
    """

    def __init__(self, name: str) -> None:
        self._path = _folder() / name / _ENERGY
        self._info = _info(name)
        self._lock = threading.Lock()
        self._trace: CounterTrace | None = None
        self._trouble: MeterError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fsjoule-powercap", daemon=True)

    def __enter__(self) -> Self:
        _read(self._path)  # raises at once if it may not be read
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join(timeout=_PATIENCE_S)

    def info(self) -> PlainInfo:
        return self._info

    def arm(self) -> None:
        """Start recording. Raises MeterError unless the counter counts: a virtual machine's may stand still."""
        before, deadline = _read(self._path), time.monotonic() + _PATIENCE_S
        while _read(self._path) == before:
            if time.monotonic() > deadline:
                raise MeterError(
                    f"the counter {self._path} stands still", hint="a virtual machine's counters may do so: use another"
                )
            time.sleep(1 / _RATE_HZ)
        with self._lock:
            self._trace = CounterTrace(self._info)
        self._wait(1)

    def disarm(self) -> PlainTrace:
        """Stop recording. Returns everything since `arm` that was not taken, up to now."""
        trace = self.take(whole=True)
        with self._lock:
            self._trace = None
        return trace

    def take(self, *, whole: bool = False) -> PlainTrace:
        """The ticks since `arm` or the last call, with their marks; `whole` waits for those up to now.

        Raises MeterError if it was not armed or the counter cannot be read any more.
        """
        if whole:
            self._wait(time.monotonic_ns() // 1000 + round(self._info.tick_us))
        with self._lock:
            self._raise_trouble()
            if self._trace is None:
                raise MeterError("the meter was not armed", hint="call arm() before disarm()")
            return self._trace.take()

    def mark_now(self, text: str) -> Callable[[], None]:
        """Mark this moment; nothing need be waited for."""
        time_us = time.monotonic_ns() // 1000
        with self._lock:
            if self._trace is not None:
                self._trace.mark(Mark(time_us, text, MarkSource.HOST))
        return lambda: None

    def _wait(self, until_us: int) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with self._lock:
                self._raise_trouble()
                if self._trace is None or self._trace.end_us >= until_us:
                    return
            if time.monotonic() > deadline:
                raise MeterError(f"the counter {self._path} was not read for {_PATIENCE_S:g} s", transient=True)
            time.sleep(1 / _RATE_HZ / 2)

    def _raise_trouble(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    def _run(self) -> None:
        while not self._closing.wait(1 / _RATE_HZ):
            try:
                before_ns = time.monotonic_ns()
                energy_uj = _read(self._path)
                time_us = (before_ns + time.monotonic_ns()) // 2000
            except MeterError as error:
                with self._lock:
                    self._trouble = error
                return
            with self._lock:
                if self._trace is not None:
                    self._trace.add(time_us, energy_uj)


def _folder() -> Path:
    return Path(os.environ.get(_FOLDER, _DEFAULT_FOLDER))


def _info(name: str) -> PlainInfo:
    folder = _folder() / name
    if "/" in name or not (folder / _ENERGY).exists():
        raise MeterError(f"there is no energy counter {name!r} in {_folder()}", hint=_HINT)
    return PlainInfo(
        instrument=POWERCAP,
        firmware=platform.release(),
        serial_number=f"{platform.node()} {name} {_text(folder / 'name')}".strip(),
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
