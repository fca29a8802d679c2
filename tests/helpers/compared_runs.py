"""Run folders of several kernels whose boots take turns, with changes of known size between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
from results_factory import BOARD, KERNEL, make_measurement
from whole_runs import write_whole

from fsjoule.model import (
    KIB,
    MIB,
    FioWorkload,
    IoPattern,
    Measurement,
    Plan,
    Planned,
    Projection,
    Provision,
    Run,
    RunStatus,
    TimedKind,
    TimedWorkload,
    Value,
)

SERIES = (
    ("btrfs", FioWorkload(IoPattern.RANDWRITE, 16 * KIB, 16 * MIB)),
    ("ext4", FioWorkload(IoPattern.READ, 16 * KIB, 16 * MIB)),
    ("ext4", TimedWorkload(TimedKind.MKFS)),
)
Change = Callable[[Measurement], Measurement]


def write_kernels(
    results: Path,
    run_id: str = "aaaaaa",
    *,
    speeds: Mapping[str, float],
    boots: int = 10,
    noise: float = 0.01,
    seed: int = 1,
    started: str = "2026-03-09T10:00:00+00:00",
    branch: str | None = None,
    versions: Mapping[str, str] | None = None,
    simulated: bool = True,
    board: str = "virtual",
    series: Sequence[int] = (0, 1, 2),
    in_turn: bool = True,
    change: Change = lambda measurement: measurement,
) -> Path:
    """A run in which `speeds` are factors of btrfs's throughput by kernel; all else is the same but for the noise.

    Energy and CPU time go with time. `change` has the last word on each measurement.
    """
    rng = np.random.default_rng(seed)
    order = [(r, k) for r in range(1, boots + 1) for k in rng.permutation(list(speeds)).tolist()]
    if not in_turn:
        order.sort(key=lambda boot: list(speeds).index(boot[1]))
    time = datetime.fromisoformat(started).astimezone(UTC)
    measurements: list[Measurement] = []
    for boot, (repetition, kernel) in enumerate(order, start=1):
        for cell in series:
            speed = speeds[kernel] if cell == 0 else 1.0
            made = _scaled(_template(cell), speed * float(np.exp(rng.normal(0, noise))))
            number = len(measurements) + 1
            time += timedelta(seconds=20)
            placed = replace(
                made,
                number=number,
                repetition=repetition,
                boot=boot,
                kernel=kernel,
                simulated=simulated,
                series=replace(made.series, board=board),
                started_utc=f"{time:%Y-%m-%dT%H:%M:%SZ}",
            )
            measurements.append(change(placed))
    known = {"branch": branch, "commit": f"c{run_id}"} if branch else {}
    entries = tuple(
        Planned(m.number, m.repetition, m.kernel, m.series.filesystem, m.workload, "quick", Provision.SCRATCH)
        for m in measurements
    )
    run = Run(
        run_id=run_id,
        started_utc=measurements[0].started_utc,
        status=RunStatus.COMPLETE,
        simulated=simulated,
        plan=Plan("quick", ("btrfs", "ext4"), tuple(speeds), boots, seed, {}, entries),
        kernels=tuple(replace(KERNEL, label=k, package=f"linux-image-{k}.0-armmp {k}.7-1") for k in speeds),
        boards={k: replace(BOARD, name=board, kernel_release=f"{k}.0-armmp") for k in speeds},
        versions={"fsjoule": "0.1.0", **(versions or {}), **known},
        finished_utc=measurements[-1].started_utc,
    )
    return write_whole(results, run, measurements)


def in_guest_time(measurement: Measurement) -> Measurement:
    """As a board in guest time measures it: another card's part is projected."""
    card = Projection("emmc", 0.1, 10.0, 40.0, 2.0, 0.5, 100.0, 20.0, 4.0)
    return replace(measurement, projected=card if measurement.throughput_mib_per_s else None)


@cache
def _template(cell: int) -> Measurement:
    filesystem, workload = SERIES[cell]
    return make_measurement(Planned(1, 1, "6.1", filesystem, workload, "quick", Provision.SCRATCH))[0]


def _scaled(made: Measurement, speed: float) -> Measurement:
    """The measurement at another speed: all that takes time, or energy, takes less of it."""
    energy = made.energy
    assert energy is not None
    return replace(
        made,
        duration_s=_over(made.duration_s, speed),
        throughput_mib_per_s=None if made.throughput_mib_per_s is None else made.throughput_mib_per_s * speed,
        cpu_s_per_mib=_over(made.cpu_s_per_mib, speed),
        energy=replace(energy, gross_mj=Value(energy.gross_mj.value / speed, 1.0)),
        energy_mj_per_mib=Value(made.energy_mj_per_mib.value / speed, 0.1) if made.energy_mj_per_mib else None,
    )


def _over(figure: float | None, speed: float) -> float | None:
    return None if figure is None else figure / speed
