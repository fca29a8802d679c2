"""Joules against truth, end to end: emulated INA219, firmware core, pty, ser2net, labgrid, driver, energy."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from labgrid import Environment
from labgrid_process import forget_coordinator

from fsjoule.host.paths import project_dir
from fsjoule.lab import MeterDriver, acquired_place, meter, variables
from fsjoule.meter.energy import energy
from fsjoule.model import Ina219Trace, Window
from fsjoule.virtual.board.power import FeedWriter
from fsjoule.virtual.lab import lab, services
from fsjoule.virtual.lab.files import LabPaths

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


_DURATION_S = 3.0
# On average, with the pauses of who plays it (1 ms). 10 mJ are allowed, which a ramp of 2.5 W is off by if 4 ms late.
_LATE_S = 0.003
_TRIES = 5
_IDLE_S = 0.3


@dataclass
class _Bench:
    meter: MeterDriver
    feed: LoadFeed
    marks: Path

    def record(self, load: Load) -> Ina219Trace:
        """The load with a rest on both sides, each of the two marked in its middle.

        On a busy computer the load itself may be played late, and is played again.
        """
        trace, tries = self._recorded(load), 1
        while self.feed.late_s > _LATE_S and tries < _TRIES:
            trace, tries = self._recorded(load), tries + 1
        return trace

    def _recorded(self, load: Load) -> Ina219Trace:
        self.meter.arm()
        time.sleep(_IDLE_S)
        self.mark("S1")
        time.sleep(_IDLE_S)
        self.feed.play(load)
        time.sleep(_IDLE_S)
        self.mark("E1")
        time.sleep(_IDLE_S)
        return self.meter.disarm()

    def mark(self, text: str) -> None:
        with self.marks.open("wb", buffering=0) as marks:
            marks.write(text.encode() + b"\n")


@pytest.fixture(scope="module")
def bench(module_state: Path) -> Generator[_Bench]:
    """A virtual lab whose meter is fed by the test instead of by the board, which stays off."""
    feed_file = module_state / "feed"
    feed = LoadFeed(feed_file)
    program = module_state / "meter"
    program.write_text(f'#!/bin/sh\nexec {services.simulator()} "$@" --feed {feed_file}\n')
    program.chmod(0o755)
    handle = lab.up("virtual", owner_pid=os.getpid(), meter_program=program)
    record = LabPaths.of("virtual").read()
    assert record is not None
    try:
        with variables(handle.environment), acquired_place(handle.place):
            environment_class: Any = Environment
            labgrid = environment_class(config_file=str(project_dir() / "env" / "virtual.yaml"))
            bench = _Bench(meter(labgrid.get_target()), feed, Path(record.devices) / "marks")
            bench.meter.set_rate(1000)  # with which the loads of these tests are in step, or not
            yield bench
            labgrid.cleanup()
            forget_coordinator()
    finally:
        lab.down("virtual")
        feed.close()


@pytest.fixture(scope="module")
def fast_bench(bench: _Bench) -> Generator[_Bench]:
    """The same at 2 kHz (11 and 10 bits), for all tests that follow."""
    bench.meter.set_rate(2000)
    yield bench
    bench.meter.set_rate(1000)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(constant, id="constant"),
        pytest.param(step, id="step"),
        pytest.param(ramp, id="ramp"),
        *(pytest.param(square(hertz), id=f"square {hertz} Hz") for hertz in (1, 3, 10, 50, 97, 125, 199)),
        pytest.param(noise, id="noise"),
    ],
)
def test_a_known_load_is_measured_to_a_thousandth(bench: _Bench, shape: Amperes) -> None:
    load = Load.of(shape, _DURATION_S)
    _within(load, bench.record(load), load.quantum_mj())


def test_a_load_in_step_with_the_ticks_is_off_by_what_it_aliases(bench: _Bench) -> None:
    """The fifth harmonic of a 200 Hz square is 1 kHz, which sampling at 1 kHz takes for a constant.

    A sample is the mean over 532 us of a conversion that ended up to 808 us before its tick: two boxes, whose responses
    at 1 kHz leave 13 % of that harmonic.
    """
    load = Load.of(square(200), _DURATION_S)
    high, low = float(load.amperes.max()), float(load.amperes.min())
    harmonic_a = 4 / np.pi * (high - low) / 2 / 5 * np.sinc(0.532) * np.sinc(0.808)
    aliased_mj = float(harmonic_a) * SUPPLY_V * _DURATION_S * 1e3
    _within(load, bench.record(load), load.quantum_mj() + aliased_mj)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(constant, id="constant"),
        pytest.param(ramp, id="ramp"),
        *(pytest.param(square(hertz), id=f"square {hertz} Hz") for hertz in (1, 50, 199, 200)),
        pytest.param(noise, id="noise"),
    ],
)
def test_a_known_load_is_measured_to_a_thousandth_at_2_khz(fast_bench: _Bench, shape: Amperes) -> None:
    load = Load.of(shape, _DURATION_S)
    _within(load, fast_bench.record(load), load.quantum_mj(shunt_step_v=20e-6, bus_step_v=16e-3))


def _within(load: Load, trace: Ina219Trace, quantum_mj: float) -> None:
    """The load's energy, gross and net, is found to a thousandth and `quantum_mj`."""
    assert (trace.missed, trace.lost, trace.faults) == (0, 0, ())
    assert [mark.text for mark in trace.marks] == ["S1", "E1"]
    start_us, stop_us = (mark.time_us for mark in trace.marks)
    measured = energy(trace, Window(start_us, stop_us), Window(start_us - 200_000, start_us - 50_000))
    for found_mj in (measured.gross_mj.value, measured.net_mj.value):
        error_mj = abs(found_mj - load.energy_mj)
        assert error_mj <= 0.001 * load.energy_mj + quantum_mj, (
            f"{found_mj:.3f} mJ measured, {load.energy_mj:.3f} mJ drawn: off by {error_mj / load.energy_mj:.3%}"
        )
