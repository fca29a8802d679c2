#!/usr/bin/env python3
"""Change-point detectors side by side on simulated series and on recorded ones, asked anew after every point."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from detectors import detectors
from output import Report, arguments
from simulation import PLAIN, STALLS, Scenario, boots

from fsjoule.statistics.changepoints import ChangePointFinder

Floats = npt.NDArray[np.float64]

RECORDED: Final = Path(__file__).parent / "recorded" / "virtual-6.1.csv"
POINTS: Final = 100
# The point at which the level of a lossy series falls.
STEP: Final = 60
# How far off a detector may be and still have found the step, and how many points it gets for `soon`.
NEAR, _SOON = 3, 5
FIRST_ASKED: Final = 6


@dataclass(frozen=True, slots=True)
class Told:
    """What a detector said over a series' life: new change points, how often it was asked, how long that took."""

    places: tuple[int, ...]
    first_at: dict[int, int]
    asked: int
    seconds: float


def follow(finder: ChangePointFinder, values: Floats, start: int = FIRST_ASKED) -> Told:
    """Ask after each point from `start` on. A change point is new if it is not next to an earlier one."""
    first_at: dict[int, int] = {}
    began = time.perf_counter()
    for count in range(start, len(values) + 1):
        for place in finder.find(values[:count]):
            if not any(abs(place - known) < NEAR for known in first_at):
                first_at[place] = count
    return Told(tuple(first_at), first_at, len(values) + 1 - start, time.perf_counter() - began)


def recorded() -> Iterator[tuple[str, Floats]]:
    """Series of one kernel on one board, a point a boot: there is nothing to be found in them but a busy host."""
    with RECORDED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for series in sorted({row["series"] for row in rows}):
        for metric in ("throughput_mib_per_s", "energy_mj_per_mib", "cpu_s_per_mib", "p99_latency_ns"):
            yield f"{series} {metric}", np.log([float(row[metric]) for row in rows if row["series"] == series])


def null_row(finder: ChangePointFinder, series: list[Floats]) -> dict[str, float | int]:
    told = [follow(finder, values) for values in series]
    asked = sum(t.asked for t in told)
    return {
        "series": len(series),
        "with a false one %": round(100 * float(np.mean([bool(t.places) for t in told])), 2),
        "false per 1000 asked": round(1000 * sum(len(t.places) for t in told) / asked, 3),
        "ms": round(1000 * sum(t.seconds for t in told) / asked, 2),
    }


def step_row(finder: ChangePointFinder, series: list[Floats]) -> dict[str, float | int]:
    delays = []
    for values in series:
        told = follow(finder, values, start=STEP + 1)
        near = [count - STEP for place, count in told.first_at.items() if abs(place - STEP) < NEAR]
        delays.append(min(near, default=POINTS))
    seen = np.array(delays) < POINTS
    return {
        "step found %": round(100 * float(seen.mean()), 1),
        f"within {_SOON} points %": round(100 * float(np.mean(np.array(delays) <= _SOON)), 1),
        "points (median)": float(np.median(delays)),
    }


def simulated(seed: int, scenario: Scenario, count: int, loss: float) -> list[Floats]:
    values = boots(np.random.default_rng(seed), scenario, (count, POINTS))
    values[:, STEP:] += np.log1p(-loss)
    return list(values)


def main() -> None:
    parser = arguments(str(__doc__), trials=100)
    parser.add_argument("--loss", type=float, default=0.05, help="size of the step in series that have one")
    options = parser.parse_args()
    settings = {"points": POINTS, "loss": options.loss, "series": options.trials, "seed": options.seed}
    report = Report("Change-point detectors, asked after every point", settings)
    for title, scenario in (("plain", PLAIN), ("5 % stalls", STALLS)):
        null = simulated(options.seed, scenario, options.trials, 0.0)
        lossy = simulated(options.seed + 1, scenario, options.trials, options.loss)
        for name, finder in detectors().items():
            row = {**null_row(finder, null), **step_row(finder, lossy)}
            report.rows.append({"points": title, "detector": name, **row})
    real = [values for _, values in recorded()]
    for name, finder in detectors().items():
        report.rows.append({"points": "recorded, one kernel", "detector": name, **null_row(finder, real)})
    report.show(as_json=options.json)


if __name__ == "__main__":
    main()
