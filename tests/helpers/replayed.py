"""Random loads through the real firmware core: fsjoule-meter-sim replays them, and the truth is known to rounding."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.meter.protocol.frames import Frame, FrameDecoder
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import Ina219Trace

Floats = npt.NDArray[np.float64]

STEP_US: Final = 100
_RECORD: Final = np.dtype([("time_ns", "<i8"), ("volts", "<f8"), ("amperes", "<f8")])
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Load:
    """Volts and amperes, each constant for `step_us`, from the beginning of the meter's clock on; shape (n,)."""

    volts: Floats
    amperes: Floats
    step_us: int = STEP_US

    @cached_property
    def _joules_before(self) -> Floats:
        return np.concatenate([[0.0], np.cumsum(self.volts * self.amperes)]) * self.step_us * 1e-6

    def energy_mj(self, start_us: float, stop_us: float) -> float:
        """What it draws between two moments."""
        edges_us = np.arange(len(self.volts) + 1) * float(self.step_us)
        before, after = np.interp([start_us, stop_us], edges_us, self._joules_before)
        return float(after - before) * 1e3

    def records(self) -> bytes:
        """As a file for `fsjoule-meter-sim --replay`. The first record only says when the recording begins."""
        records = np.zeros(len(self.volts) + 1, dtype=_RECORD)
        records["time_ns"] = 1_000_000_000 + np.arange(len(records)) * self.step_us * 1000
        records["volts"][1:] = self.volts
        records["amperes"][1:] = self.amperes
        return records.tobytes()


@dataclass(frozen=True)
class Chip:
    """An INA219 and its resistor, with their errors."""

    offset_uv: float = 0.0
    gain_ppm: float = 0.0
    bus_gain_ppm: float = 0.0
    noise_uv: float = 0.0
    seed: int = 0

    def arguments(self) -> list[str]:
        options = {
            "--chip-offset-uv": f"{self.offset_uv:.6f}",
            "--chip-gain-ppm": f"{self.gain_ppm:.6f}",
            "--chip-bus-gain-ppm": f"{self.bus_gain_ppm:.6f}",
            "--chip-noise-uv": f"{self.noise_uv:.6f}",
            "--chip-seed": str(self.seed),
        }
        return [word for option in options.items() for word in option]


@dataclass(frozen=True)
class Settings:
    """How the meter is set."""

    rate_hz: int = 1000
    range_mv: int = 80
    shunt_uohm: int = 100_000

    def arguments(self) -> list[str]:
        return [
            *("--rate-hz", str(self.rate_hz), "--range-mv", str(self.range_mv)),
            *("--shunt-uohm", str(self.shunt_uohm)),
        ]


@dataclass(frozen=True)
class Meter:
    """A meter that measures what it is told in no time."""

    program: Path
    chip: Chip = field(default_factory=Chip)
    settings: Settings = field(default_factory=Settings)

    def stream(self, load: Load) -> bytes:
        """What the meter sends over a load."""
        arguments = ["--replay", "/dev/stdin", *self.settings.arguments(), *self.chip.arguments()]
        done = subprocess.run(
            [self.program, *arguments], input=load.records(), capture_output=True, check=True, timeout=_TIMEOUT_S
        )
        return done.stdout

    def trace(self, load: Load, arrives: Callable[[Frame], bool] = lambda _: True) -> Ina219Trace:
        """The trace of a load, made of the frames that arrive."""
        builder = TraceBuilder()
        builder.add(frame for frame in FrameDecoder().feed(self.stream(load)) if arrives(frame))
        return builder.build()


# ------------------------------------------------------------------------------------------------------------- shapes


def _constant(seconds: Floats, random: np.random.Generator) -> Floats:
    return np.full(len(seconds), random.uniform(0, 1))


def _ramp(seconds: Floats, random: np.random.Generator) -> Floats:
    low, high = random.uniform(0, 1, 2)
    return low + (high - low) * seconds / seconds[-1]


def _square(seconds: Floats, random: np.random.Generator) -> Floats:
    low, high = random.uniform(0, 1, 2)
    hertz, duty, phase = np.exp(random.uniform(0, np.log(200))), random.uniform(0.1, 0.9), random.uniform(0, 1)
    return np.where((seconds * hertz + phase) % 1.0 < duty, high, low)


def _sine(seconds: Floats, random: np.random.Generator) -> Floats:
    middle, hertz = random.uniform(0.3, 0.7), np.exp(random.uniform(-1, np.log(300)))
    return middle + random.uniform(0, 0.3) * np.sin(2 * np.pi * hertz * seconds + random.uniform(0, 7))


def _bursts(seconds: Floats, random: np.random.Generator) -> Floats:
    """A board at work: levels that last from half a millisecond to a tenth of a second."""
    lengths = random.exponential(np.exp(random.uniform(np.log(5), np.log(1000))), len(seconds)) + 1
    levels = np.repeat(random.uniform(0, 1, len(seconds)), lengths.astype(np.int64))
    return levels[: len(seconds)]


def _noise(seconds: Floats, random: np.random.Generator) -> Floats:
    return np.clip(random.normal(random.uniform(0.3, 0.7), random.uniform(0, 0.15), len(seconds)), 0, 1)


SHAPES: Final[tuple[Callable[[Floats, np.random.Generator], Floats], ...]] = (
    _constant,
    _ramp,
    _square,
    _sine,
    _bursts,
    _noise,
)


def random_load(random: np.random.Generator, *, idle_s: float, work_s: float, most_a: float) -> Load:
    """Idling at a steady current, work of a random shape, and idling again for a tenth of a second."""
    idle_n, work_n, tail_n = (round(seconds * 1e6 / STEP_US) for seconds in (idle_s, work_s, 0.1))
    seconds: Floats = np.arange(work_n, dtype=np.float64) * (STEP_US * 1e-6)
    shape = SHAPES[random.integers(len(SHAPES))](seconds, random)
    idle = random.uniform(0.02, 0.5)
    relative = np.concatenate([np.full(idle_n, idle), idle + shape * (1 - idle), np.full(tail_n, idle)])
    amperes = relative * most_a
    volts = random.choice([3.3, 5.0, 12.0]) * random.uniform(0.95, 1.05) - random.uniform(0, 0.3) * amperes
    return Load(volts, amperes)
