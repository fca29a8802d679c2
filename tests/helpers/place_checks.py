"""Runs of the check standard, one a night at a place, with figures that change when they are told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
from results_factory import BOARD, KERNEL, LAB, METER, make_measurement
from whole_runs import write_whole

from fsjoule.model import (
    Exporter,
    Ina219Info,
    Measurement,
    Plan,
    Planned,
    Provision,
    Run,
    RunStatus,
    TimedKind,
    TimedWorkload,
    Value,
)
from fsjoule.model.workload import OwnCommand

BEGIN = datetime(2026, 1, 1, 2, tzinfo=UTC)
WATTS = {"idle": 1.2, "cpu": 1.9}


def steady(_night: int) -> float:
    return 1.0


def one_meter(_night: int) -> Ina219Info:
    return METER


def one_kernel(_night: int) -> str:
    return "6.1.0-44-armmp"


@dataclass(frozen=True)
class PlaceNights:
    """Checks of a place with the relative `noise`. `gain` is what its meter's watts are multiplied by, by night.

    `meter` and `kernel` (its release) are those of a night. A check's watts have the standard uncertainty of 0.3 %.
    """

    place: str = "bench-3"
    exporter: str = "rack"
    gain: Callable[[int], float] = steady
    meter: Callable[[int], Ina219Info] = one_meter
    kernel: Callable[[int], str] = one_kernel
    noise: float = 0.002
    seed: int = 1

    def write(self, results: Path, nights: int) -> list[Path]:
        """Write the runs; gives their folders."""
        rng = np.random.default_rng(self.seed)
        return [self._write(results, night, rng) for night in range(nights)]

    def _write(self, results: Path, night: int, rng: np.random.Generator) -> Path:
        started = BEGIN + timedelta(days=night)
        measurements: list[Measurement] = []
        entries: list[Planned] = []
        for number, name in enumerate(WATTS, start=1):
            measurement, entry = _template(name, number)
            watts = WATTS[name] * self.gain(night) * float(np.exp(rng.normal(0, self.noise)))
            assert measurement.energy is not None
            energy = replace(measurement.energy, mean_power_w=Value(watts, 0.003 * watts))
            seconds = 10 * float(np.exp(rng.normal(0, self.noise)))
            at = _iso(started + timedelta(minutes=number))
            measurements.append(replace(measurement, energy=energy, duration_s=seconds, started_utc=at))
            entries.append(entry)
        release = self.kernel(night)
        run = Run(
            run_id=f"{self.place.replace('-', '')}{night:04d}",
            started_utc=_iso(started),
            status=RunStatus.COMPLETE,
            simulated=True,
            plan=Plan("standard", ("ext4",), ("6.1",), 1, night, {}, tuple(entries)),
            kernels=(replace(KERNEL, release=release),),
            boards={"6.1": replace(BOARD, kernel_release=release)},
            meter=self.meter(night),
            lab=replace(LAB, place=self.place, exporters=(Exporter(self.exporter, ""),)),
            finished_utc=_iso(started + timedelta(hours=1)),
        )
        return write_whole(results, run, measurements)


@cache
def _template(name: str, number: int) -> tuple[Measurement, Planned]:
    workload = TimedWorkload(TimedKind.COMMAND, command=OwnCommand(name, ("sleep", "10")))
    planned = Planned(number, 1, "6.1", "ext4", workload, "standard", Provision.SCRATCH)
    made, _ = make_measurement(replace(planned, workload=TimedWorkload(TimedKind.MOUNT)))
    series = replace(made.series, suite="standard", workload=workload.slug)
    return replace(made, slug=planned.slug, workload=workload, series=series, samples=None), planned


def _iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
