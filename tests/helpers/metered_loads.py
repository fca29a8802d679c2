"""Loads whose energy is known exactly, told to an emulated meter in real time.

A load is a current over time at a supply that droops with it. The feed has a record every 250 us, whose current is the
mean over its interval; the energy is the sum over the records themselves, so it is known to rounding. Before and after
the load the current is zero: a window may begin and end anywhere there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.virtual.board.feed import FeedWriter

STEP_NS: Final = 250_000
_PAUSE_S: Final = 0.002
SUPPLY_V: Final = 5.03
DROOP_OHM: Final = 0.15

Amperes = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]


def constant(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.full_like(seconds, 0.253)


def step(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(seconds < seconds[-1] / 3, 0.2031, 0.2777)


def ramp(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 0.1 + 0.5 * seconds / seconds[-1]


def square(hertz: float) -> Amperes:
    return lambda seconds: np.where((seconds * hertz) % 1.0 < 0.5, 0.311, 0.204)


def noise(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """White noise, new every 250 us, on a slow wave. The seed is fixed."""
    random = np.random.default_rng(20261121)
    return 0.26 + 0.03 * np.sin(2 * np.pi * 0.7 * seconds) + random.uniform(-0.05, 0.05, len(seconds))


@dataclass(frozen=True)
class Load:
    """Volts and amperes of each record, shape (n,)."""

    volts: npt.NDArray[np.float64]
    amperes: npt.NDArray[np.float64]

    @classmethod
    def of(cls, amperes: Amperes, duration_s: float) -> Load:
        drawn = amperes(np.arange(0.0, duration_s, STEP_NS * 1e-9))
        return cls(SUPPLY_V - DROOP_OHM * drawn, drawn)

    @property
    def duration_s(self) -> float:
        return len(self.amperes) * STEP_NS * 1e-9

    @property
    def energy_mj(self) -> float:
        return float((self.volts * self.amperes).sum()) * STEP_NS * 1e-6

    def quantum_mj(self, *, shunt_step_v: float = 10e-6, bus_step_v: float = 8e-3) -> float:
        """Half a step of both converters at 0.1 Ohm, taken to be the same way in every sample."""
        steps_w = self.volts * shunt_step_v / 2 / 0.1 + self.amperes * bus_step_v / 2
        return float(steps_w.sum()) * STEP_NS * 1e-6


class LoadFeed:
    """Writes the feed from construction to `close`: no current, or the load that `play` was given.

    `late_s` is how late the records of the last load were on average. The meter takes the record before for a late one.
    """

    def __init__(self, path: Path) -> None:
        self._feed = FeedWriter(path)
        self._closing = threading.Event()
        self._next: Load | None = None
        self._done = threading.Event()
        self.late_s = 0.0
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def play(self, load: Load) -> None:
        """Return when the load has been drawn. Raises TimeoutError if that takes much too long."""
        self._done.clear()
        self._next = load
        if not self._done.wait(load.duration_s + 30.0):
            raise TimeoutError("the load was not played")

    def close(self) -> None:
        self._closing.set()
        self._thread.join(5.0)
        self._feed.close()

    def _run(self) -> None:
        at_ns = time.monotonic_ns()
        load, index, late_ns = None, 0, 0
        while not self._closing.is_set():
            while at_ns + STEP_NS <= time.monotonic_ns():
                if load is None and self._next is not None:
                    load, self._next, index, late_ns = self._next, None, 0, 0
                at_ns += STEP_NS
                if load is None:
                    self._feed.append(at_ns, SUPPLY_V, 0.0)
                    continue
                self._feed.append(at_ns, float(load.volts[index]), float(load.amperes[index]))
                index += 1
                late_ns += time.monotonic_ns() - at_ns
                if index == len(load.amperes):
                    self.late_s = 1e-9 * late_ns / index
                    load = None
                    self._done.set()
            time.sleep(_PAUSE_S)
