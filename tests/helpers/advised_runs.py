"""Run folders with the parts of usage profiles, whose figures are known: what advice says of them can be computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from results_factory import BOARD, KERNEL, LAB, METER, make_measurement
from whole_runs import write_whole

from fsjoule.model import (
    KIB,
    MIB,
    DamageOutcome,
    FileFate,
    FioWorkload,
    IoPattern,
    LabFacts,
    Measurement,
    MeterInfo,
    Plan,
    Planned,
    PoolPlace,
    PowerLossWorkload,
    Provision,
    Run,
    RunStatus,
    TimedKind,
    TimedWorkload,
    Value,
    Workload,
)

IDLE_W = 1.0
UNCERTAINTY = 0.001  # of an energy and of the idle power, relative
# What the profile `logger` does.
LOGGER: dict[str, Workload] = {
    "read-64k": FioWorkload(IoPattern.READ, 64 * KIB, 16 * MIB),
    "write-4k": FioWorkload(IoPattern.WRITE, 4 * KIB, 16 * MIB),
    "write-4k-fsync1": FioWorkload(IoPattern.WRITE, 4 * KIB, MIB, fsync_every=1),
    "write_files-20k": TimedWorkload(TimedKind.WRITE_FILES, 20 * KIB),
}
POWER_LOSS = PowerLossWorkload(sync=False)


@dataclass(frozen=True)
class Made:
    """One part of a filesystem: joules, seconds and MiB written, per MiB of a job or of an operation; p99 in ms."""

    joules: float
    seconds: float
    written_mib: float
    p99_ms: float


PLAIN: dict[str, Made] = {
    "read-64k": Made(0.05, 0.04, 0.0, 1.0),
    "write-4k": Made(0.10, 0.08, 1.1, 2.0),
    "write-4k-fsync1": Made(2.0, 1.5, 4.0, 20.0),
    "write_files-20k": Made(0.5, 0.4, 0.3, 1.0),
}


def changed(slug: str, **figures: float) -> dict[str, Made]:
    """The parts of a filesystem that differs from the plain one in one part."""
    return PLAIN | {slug: replace(PLAIN[slug], **figures)}


Change = Callable[[Measurement], Measurement]


def write_parts(
    results: Path,
    run_id: str,
    filesystems: Mapping[str, Mapping[str, Made]],
    *,
    boots: int = 8,
    noise: float = 0.01,
    seed: int = 1,
    kernel: str = "6.1",
    board: str = "virtual",
    lab: LabFacts = LAB,
    meter: MeterInfo = METER,
    places: tuple[PoolPlace, ...] = (),
    simulated: bool = True,
    change: Change = lambda m: m,
) -> Path:
    """A run in which every boot measures all parts of all filesystems once; energy and time share a boot's noise."""
    rng = np.random.default_rng(seed)
    made: list[Measurement] = []
    for boot in range(1, boots + 1):
        for name, parts in filesystems.items():
            for slug, part in parts.items():
                factor = float(np.exp(rng.normal(0, noise)))
                made.append(
                    _part(name, LOGGER[slug], part, factor=factor, number=len(made) + 1, boot=boot, board=board)
                )
    return _write(
        results,
        run_id,
        made,
        suite="advice",
        change=change,
        kernel=kernel,
        board=board,
        lab=lab,
        meter=meter,
        places=places,
        simulated=simulated,
    )


def write_cuts(
    results: Path, run_id: str, lost: Mapping[str, tuple[int, ...]], *, promised: int = 10, change: Change = lambda m: m
) -> Path:
    """A run of power cuts: the files that each cut of each filesystem lost."""
    made: list[Measurement] = []
    cuts = max(map(len, lost.values()))
    for repetition in range(1, cuts + 1):
        for name, losses in lost.items():
            number = len(made) + 1
            base = _part(name, LOGGER["write-4k"], PLAIN["write-4k"], number=number, boot=number)
            files = {FileFate.INTACT: promised - losses[repetition - 1], FileFate.MISSING: losses[repetition - 1]}
            outcome = DamageOutcome(
                {fate: n for fate, n in files.items() if n}, True, False, 0, True, cut_s=1.0, seed=1
            )
            made.append(
                replace(
                    base,
                    slug=f"{name}-{POWER_LOSS.slug}",
                    repetition=repetition,
                    series=replace(base.series, suite="elc2015/power-loss", workload=POWER_LOSS.identity),
                    workload=POWER_LOSS,
                    duration_s=0.1 + 0.001 * repetition,
                    throughput_mib_per_s=None,
                    fio=None,
                    outcome=outcome,
                )
            )
    return _write(results, run_id, made, suite="elc2015/power-loss", change=change)


def _part(
    name: str, workload: Workload, part: Made, *, factor: float = 1.0, number: int, boot: int, board: str = "virtual"
) -> Measurement:
    base = _base()
    planned = Planned(number, boot, "6.1", name, workload, "advice", Provision.SCRATCH)
    is_fio = isinstance(workload, FioWorkload)
    units = workload.size_bytes / MIB if is_fio else 1.0
    gross_mj = 1e3 * part.joules * factor * units
    energy, fio, counters = base.energy, base.fio, base.counters
    assert energy is not None
    assert fio is not None
    assert counters is not None
    percentiles = {"99": round(1e6 * part.p99_ms * factor)}
    fsyncs = is_fio and workload.fsync_every
    return replace(
        base,
        number=number,
        slug=planned.slug,
        repetition=boot,
        boot=boot,
        series=replace(
            base.series,
            suite="advice",
            board=board,
            filesystem=name,
            mount_options=tuple(filter(None, name.partition(":")[2].split("+"))),
            workload=workload.identity,
        ),
        workload=workload,
        window_s=part.seconds * factor * units,
        duration_s=part.seconds * factor * units,
        energy=replace(
            energy,
            gross_mj=Value(gross_mj, UNCERTAINTY * gross_mj),
            idle_power_w=Value(IDLE_W, UNCERTAINTY * IDLE_W),
        ),
        counters=replace(counters, written_bytes=round(part.written_mib * units * MIB)),
        fio=replace(
            fio,
            io_bytes=workload.size_bytes,
            latency_percentiles_ns={"99": 1000} if fsyncs else percentiles,
            fsync_percentiles_ns=percentiles if fsyncs else {},
        )
        if is_fio
        else None,
    )


@cache
def _base() -> Measurement:
    return make_measurement(Planned(1, 1, "6.1", "ext4", LOGGER["write-4k"], "advice", Provision.SCRATCH))[0]


def _write(
    results: Path,
    run_id: str,
    made: list[Measurement],
    *,
    suite: str,
    change: Change,
    kernel: str = "6.1",
    board: str = "virtual",
    lab: LabFacts = LAB,
    meter: MeterInfo = METER,
    places: tuple[PoolPlace, ...] = (),
    simulated: bool = True,
) -> Path:
    placed = [change(replace(m, kernel=kernel, simulated=simulated)) for m in made]
    entries = tuple(
        Planned(m.number, m.repetition, kernel, m.series.filesystem, m.workload, suite, Provision.SCRATCH)
        for m in placed
    )
    run = Run(
        run_id=run_id,
        started_utc="2026-03-09T10:00:00Z",
        status=RunStatus.COMPLETE,
        simulated=simulated,
        plan=Plan(suite, ("ext4", "btrfs"), (kernel,), made[-1].repetition, 1, {}, entries),
        kernels=(replace(KERNEL, label=kernel, package=f"linux-image-{kernel}.0-armmp {kernel}.7-1"),),
        boards={kernel: replace(BOARD, name=board, kernel_release=f"{kernel}.0-armmp")},
        meter=None if places else meter,
        lab=None if places else lab,
        places=places,
        command=("pytest", "tests/bench", "--lg-env", "env/virtual-lossy.yaml", "--suite", suite),
        finished_utc="2026-03-09T11:00:00Z",
    )
    return write_whole(results, run, placed)
