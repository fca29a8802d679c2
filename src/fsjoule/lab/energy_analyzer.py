"""labgrid's protocol of energy analyzers, which fsjoule's meters speak and accept from other drivers.

It is labgrid's pull request 1920 (https://github.com/labgrid-project/labgrid/pull/1920). A labgrid without it gets the
same class from here. docs/joules.md says what it lacks: marks, losses and an uncertainty.
"""

from __future__ import annotations

import abc
import csv
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np
from labgrid import protocol

from fsjoule.errors import MeterError
from fsjoule.lab.translate import lab_errors
from fsjoule.meter.energy.stated import AMPERES_OFFSET, AMPERES_SHARE, VOLTS_OFFSET, VOLTS_SHARE
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace, Trace
from fsjoule.model.meter import READ_S

ANALYZER: Final = "energy analyzer"
# No course of the power is known between two marks, so that a tick is only where a window may end.
_RATE_HZ: Final = 1000
_STATISTICS_S: Final = 0.5
_SIGNALS: Final = ("current", "voltage", "power")


class _Protocol(abc.ABC):
    """The protocol for a labgrid that has none: current, voltage, power, and energy between `start` and `stop`."""

    @abc.abstractmethod
    def get_statistics(self) -> dict[str, Any]: ...

    @abc.abstractmethod
    def start(self) -> None: ...

    @abc.abstractmethod
    def stop(self) -> dict[str, float]: ...

    @abc.abstractmethod
    def capture(
        self,
        filename: str,
        signals: Sequence[str] | None = None,
        duration: float | None = None,
        frequency: float | None = None,
    ) -> None: ...


if TYPE_CHECKING:
    EnergyAnalyzerProtocol = _Protocol
else:
    EnergyAnalyzerProtocol = getattr(protocol, "EnergyAnalyzerProtocol", _Protocol)


class _Recorder(Protocol):
    def arm(self) -> None: ...

    def disarm(self) -> Trace: ...


class Analyzer(EnergyAnalyzerProtocol):
    """The protocol on a driver that is a ports.Meter. Errors are MeterError."""

    def get_statistics(self) -> dict[str, Any]:
        """Half a second: `avg`, `std`, `min`, `max` of current, voltage and power; its charge and energy."""
        self.start()
        time.sleep(_STATISTICS_S)
        trace = self._recorder.disarm()
        told: dict[str, Any] = {
            name: {"avg": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}
            for name, values in _signals(trace).items()
        }
        return told | _sums(trace)

    def start(self) -> None:
        """Begin a window."""
        self._recorder.arm()

    def stop(self) -> dict[str, float]:
        """End the window: `energy_J`, `charge_C` (NaN if the current is not measured), `duration_s`."""
        return _sums(self._recorder.disarm())

    def capture(
        self,
        filename: str,
        signals: Sequence[str] | None = None,
        duration: float | None = None,
        frequency: float | None = None,
    ) -> None:
        """Record `duration` seconds as CSV: a column of seconds, and one of each signal, in A, V and W.

        Raises ValueError for unknown signals, and for a `frequency`, which is the meter's own.
        """
        names = tuple(signals or _SIGNALS)
        if duration is None or not duration > 0 or frequency is not None or not set(names) <= set(_SIGNALS):
            raise ValueError(f"capture takes a duration in seconds, signals among {_SIGNALS}, and no frequency")
        self.start()
        time.sleep(duration)
        trace = self._recorder.disarm()
        columns = _signals(trace)
        with Path(filename).open("w", newline="", encoding="ascii") as file:
            rows = csv.writer(file)
            rows.writerow(["time_s", *names])
            rows.writerows(zip(trace.times_us * 1e-6, *(columns[name] for name in names), strict=True))

    @property
    def _recorder(self) -> _Recorder:
        return cast("_Recorder", self)


def _signals(trace: Trace) -> dict[str, Any]:
    if not len(trace.ticks):
        raise MeterError("the meter gave no sample", transient=True)
    return dict(zip(_SIGNALS, (trace.current_a, trace.voltage_v, trace.power_w), strict=True))


def _sums(trace: Trace) -> dict[str, float]:
    tick_s = trace.info.tick_us * 1e-6
    return {
        "energy_J": float(trace.power_w.sum()) * tick_s,
        "charge_C": float(np.sum(trace.current_a)) * tick_s,
        "duration_s": len(trace.ticks) * tick_s,
    }


class AnalyzerMeter:
    """ports.Meter of another's energy analyzer, which the host marks: each mark ends a window and begins the next.

    Between two marks it tells an energy and a time, and no course. `percent` is the limit of error that its user
    states, of a reading; how long it takes to end a window and begin the next one counts as delay of marks.
    """

    def __init__(self, driver: Any, percent: float, serial_number: str, *, simulated: bool) -> None:  # noqa: ANN401
        self._driver = driver
        self._percent = percent
        self._serial_number = serial_number
        self._simulated = simulated
        self._parts: list[tuple[float, float]] = []
        self._marks: list[str] = []
        self._read_s = 0.0

    def info(self) -> PlainInfo:
        return PlainInfo(
            instrument=ANALYZER,
            firmware="",
            serial_number=self._serial_number,
            rate_hz=_RATE_HZ,
            measures_voltage=False,
            simulated=self._simulated,
            settings={
                READ_S: self._read_s,
                VOLTS_SHARE: self._percent * 1e-2,
                VOLTS_OFFSET: 0.0,
                AMPERES_SHARE: 0.0,
                AMPERES_OFFSET: 0.0,
            },
        )

    def arm(self) -> None:
        self._parts, self._marks, self._read_s = [], [], 0.0
        with self._errors("starting"):
            self._driver.start()

    def mark_now(self, text: str) -> Callable[[], None]:
        """Mark this moment; nothing need be waited for."""
        begun_s = time.monotonic()
        self._end_part()
        self._marks.append(text)
        with self._errors("starting"):
            self._driver.start()
        self._read_s = max(self._read_s, time.monotonic() - begun_s)
        return lambda: None

    def disarm(self) -> PlainTrace:
        self._end_part()
        trace = PolledTrace(self.info(), gaps=False)
        edges_us, total_nj = [0.0], 0.0
        trace.read(0, 0.0)
        for energy_j, duration_s in self._parts:
            edges_us.append(edges_us[-1] + duration_s * 1e6)
            total_nj += energy_j * 1e9
            trace.read(round(edges_us[-1]), total_nj)
        for at_us, text in zip(edges_us[1:], self._marks, strict=False):
            trace.mark(Mark(round(at_us), text, MarkSource.HOST))
        return trace.take()

    def _end_part(self) -> None:
        with self._errors("stopping"):
            told = self._driver.stop()
        try:
            energy_j, duration_s = float(told["energy_J"]), float(told["duration_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise MeterError(f"{self._name}.stop() returned no energy_J and duration_s: {told!r}") from error
        if not (np.isfinite(energy_j) and np.isfinite(duration_s) and duration_s >= 0):
            raise MeterError(f"{self._name}.stop() returned {energy_j} J in {duration_s} s")
        self._parts.append((energy_j, duration_s))

    def _errors(self, doing: str) -> Any:  # noqa: ANN401 - a context manager
        return lab_errors(f"{doing} a window of {self._name}", MeterError.part)

    @property
    def _name(self) -> str:
        return type(self._driver).__name__
