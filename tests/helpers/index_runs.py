"""Run folders for tests of the index: small, quickly made, each with figures of its own."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from results_factory import KERNEL, MadeRun, make_run
from synthetic_runs import SyntheticLab
from whole_runs import write_whole

from fsjoule.model import BoardFacts, Measurement, RunStatus
from fsjoule.model.series import Point, Where
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import points

Change = Callable[[Measurement], Measurement]


@dataclass(frozen=True)
class Written:
    """A run folder, and the measurements that are in it."""

    path: Path
    measurements: tuple[Measurement, ...]


@cache
def made_run() -> MadeRun:
    """15 measurements of as many series; measurement 2 is invalid, measurement 3 has no energy."""
    return make_run(repeat=1)


def write_run(
    results: Path,
    run_id: str = "aaaaaa",
    *,
    started: str = "2026-03-09T10:00:00Z",
    kernel: tuple[str, str] = ("6.1.0-44-armmp", "6.1.164-1"),
    choice: str = "6.1",
    branch: str | None = None,
    simulated: bool = True,
    only: Iterable[int] | None = None,
    finished: bool = True,
    change: Change = lambda measurement: measurement,
) -> Written:
    """Write a run; its figures depend on its id. `only` are numbers of measurements; `change` has the last word."""
    made = made_run()
    board = made.run.board
    assert board is not None
    run = replace(
        made.run,
        run_id=run_id,
        started_utc=started,
        simulated=simulated,
        plan=replace(made.run.plan, kernels=(choice,)),
        kernels=(replace(KERNEL, label=choice, package=f"linux-image-{kernel[0]} {kernel[1]}" if kernel[1] else ""),),
        boards={choice: _booted(board, kernel)},
        versions={"fsjoule": "0.1.0"} if branch is None else {"branch": branch, "commit": "c0ffee"},
    )
    wanted = [m for m in made.measurements if only is None or m.number in set(only)]
    measurements = tuple(change(_of_run(m, run_id, started, choice, simulated=simulated)) for m in wanted)
    path = write_whole(results, run if finished else replace(run, status=RunStatus.RUNNING), measurements)
    return Written(path, measurements)


def _booted(board: BoardFacts, kernel: tuple[str, str]) -> BoardFacts:
    return replace(board, kernel_release=kernel[0], kernel_version=f"#1 SMP Debian {kernel[1]} (2026-03-09)")


def _of_run(measurement: Measurement, run_id: str, started: str, kernel: str, *, simulated: bool) -> Measurement:
    factor = 1 + zlib.crc32(run_id.encode()) / 2**36
    duration_s = measurement.duration_s
    speed = measurement.throughput_mib_per_s
    second = f"{measurement.number // 60:02d}:{measurement.number % 60:02d}Z"
    return replace(
        measurement,
        kernel=kernel,
        started_utc=started[:-6] + second,
        simulated=simulated,
        duration_s=None if duration_s is None else duration_s / factor,
        throughput_mib_per_s=None if speed is None else speed * factor,
    )


def edit(path: Path, **changes: object) -> None:
    """Change fields of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def measurement_file(run: Path, number: int) -> Path:
    return next((run / "measurements").glob(f"{number:02d}-*")) / "measurement.json"


def many_runs(into: Path, first: int, runs: int) -> int:
    """Write many small runs quickly; returns how many measurements each has."""
    lab = SyntheticLab(boards=3, seed=1)
    assert len(list(lab.write(into, first, runs))) == runs
    return lab.measurements_per_run


def write_days(results: Path, days: range, *, branch: str | None = None) -> None:
    for day in days:
        write_run(results, f"run{day}", started=f"2026-03-{day:02d}T10:00:00Z", only=[5, 6], branch=branch)


def measured(index: Index) -> dict[tuple[str, int], Point]:
    """Every measurement of an index, by run and number."""
    series = points(index, Where(invalid_too=True)).values()
    return {(point.run_id, point.number): point for each in series for point in each}
