"""How well runs of one kernel agree on the deterministic board, figure by figure.

python tests/statistics/deterministic_repeat.py --runs 2 --load 2 -- --fs ext4,btrfs --kernel 6.1 --repeat 1
python tests/statistics/deterministic_repeat.py --compare results/RUN results/RUN...
python tests/statistics/deterministic_repeat.py --spread results/RUN

Runs `pytest tests/bench` that many times with the same seed, each in a virtual lab of its own, all but the first with
`--load` processes that keep the machine busy, and compares every figure of every measurement with that of the first
run. What stands behind `--` goes to the bench. Exit code 1 if a figure differs by more than 1 %, or their median by
more than 0.2 %. `--spread` says how far the boots of one run lie apart.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from fsjoule.model import Measurement
from fsjoule.store.reader import LoadedRun, load_run

PROJECT: Final = Path(__file__).parents[2]
LARGEST: Final = 0.01
MEDIAN: Final = 0.002
_SPREAD: Final = ("throughput_mib_per_s", "cpu_s_per_mib", "energy_mj_per_mib.value", "duration_s")
_BENCH_TIMEOUT_S: Final = 4 * 3600.0
# Not figures: where in the meter's time a window lay, and which one it was.
_NOT_FIGURES: Final = ("number", "repetition", "boot", "window.", "idle_window.", "workload.", "series.")


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one measurement in two runs; `relative` is the difference over the larger of the two."""

    figure: str
    slug: str
    first: float
    other: float

    @property
    def relative(self) -> float:
        largest = max(abs(self.first), abs(self.other))
        return abs(self.first - self.other) / largest if largest else 0.0


def figures(measurement: Measurement) -> dict[str, float]:
    """All numbers of a measurement by name: `energy.gross_mj.value`, `fio.latency_percentiles_ns.99`."""
    found = dict(_numbers("", dataclasses.asdict(measurement)))
    return {name: value for name, value in found.items() if not name.startswith(_NOT_FIGURES)}


def _numbers(prefix: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, part in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _numbers(f"{prefix}.{key}" if prefix else str(key), part)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield prefix, float(value)


def differences(first: Sequence[Measurement], other: Sequence[Measurement]) -> list[Difference]:
    """Figure by figure. Raises ValueError if the two are not of one plan, or if one lacks a figure of the other."""
    if [m.slug for m in first] != [m.slug for m in other]:
        raise ValueError("the runs did not measure the same in the same order: give both the same --seed")
    found: list[Difference] = []
    for a, b in zip(first, other, strict=True):
        figures_a, figures_b = figures(a), figures(b)
        if figures_a.keys() != figures_b.keys():
            raise ValueError(f"{a.slug}: only one of the runs has {sorted(figures_a.keys() ^ figures_b.keys())}")
        found += [Difference(name, a.slug, value, figures_b[name]) for name, value in figures_a.items()]
    return found


def same_samples(first: LoadedRun, other: LoadedRun) -> tuple[int, int]:
    """Of how many measurements the meter's raw samples are the same, and how many there are."""
    same = 0
    for measurement in first.measurements:
        a, b = first.trace(measurement.number), other.trace(measurement.number)
        same += a is not None and b is not None and np.array_equal(a.power_w, b.power_w)
    return same, len(first.measurements)


def table(found: Sequence[Difference]) -> str:
    """A line a figure: how many there are, how many are equal, median and largest difference and where that was."""
    groups: dict[str, list[Difference]] = {}
    for each in found:
        groups.setdefault(each.figure, []).append(each)
    lines = [f"{'figure':<44} {'n':>5} {'equal':>6} {'median':>9} {'largest':>9}  where"]
    for name, group in groups.items():
        worst = max(group, key=lambda d: d.relative)
        middle = statistics.median(d.relative for d in group)
        equal = sum(d.first == d.other for d in group)
        where = f"{worst.slug}: {worst.first:g}, {worst.other:g}" if worst.relative else ""
        lines.append(f"{name:<44} {len(group):>5} {equal:>6} {middle:>8.4%} {worst.relative:>9.4%}  {where}")
    return "\n".join(lines)


def verdict(found: Sequence[Difference]) -> tuple[str, bool]:
    """All figures together, and whether they agree."""
    relative = [d.relative for d in found]
    largest, middle = max(relative), statistics.median(relative)
    equal = sum(d.first == d.other for d in found)
    text = f"{len(found)} figures, {equal} equal; median {middle:.4%}, largest {largest:.4%}"
    return text, largest <= LARGEST and middle <= MEDIAN


@contextmanager
def busy(processes: int) -> Generator[None]:
    """That many processes that compute and do nothing else."""
    with ExitStack() as closing:
        for _ in range(processes):
            spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            closing.callback(spinning.wait)
            closing.callback(spinning.kill)
        yield


def bench(results: Path, options: Sequence[str]) -> Path:
    """Run one bench; returns its run folder. Raises CalledProcessError if a measurement failed."""
    before = set(results.glob("*"))
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "tests/bench",
        "-p",
        "no:cacheprovider",
        "--results",
        str(results),
        *options,
    ]
    subprocess.run(argv, cwd=PROJECT, check=True, timeout=_BENCH_TIMEOUT_S)
    [folder] = set(results.glob("*")) - before
    return folder


def spread(folder: Path) -> None:
    """Print the relative standard deviation of a run's boots, for each measured thing and metric."""
    run = load_run(folder)
    groups: dict[tuple[str, str, str], list[float]] = {}
    for measurement in run.measurements:
        found = figures(measurement)
        for name in _SPREAD:
            if name in found:
                groups.setdefault((measurement.kernel, measurement.slug, name), []).append(found[name])
    print(f"{'kernel':<10} {'measured':<26} {'figure':<28} {'boots':>5} {'mean':>10} {'SD':>8} {'range':>8}")
    for (kernel, slug, name), values in sorted(groups.items()):
        mean = statistics.fmean(values)
        if len(values) > 1 and mean:
            deviation, extent = statistics.stdev(values) / mean, (max(values) - min(values)) / mean
            print(f"{kernel:<10} {slug:<26} {name:<28} {len(values):>5} {mean:>10.5g} {deviation:>8.3%} {extent:>8.3%}")


def compare(folders: Sequence[Path]) -> bool:
    """Print how far the runs agree with the first one; returns whether they do."""
    runs = [load_run(folder) for folder in folders]
    for run in runs:
        invalid = [m.slug for m in run.measurements if not m.valid]
        print(f"{run.path.name}: {len(run.measurements)} measurements" + (f", invalid: {invalid}" if invalid else ""))
    found: list[Difference] = []
    for run in runs[1:]:
        found += differences(runs[0].measurements, run.measurements)
        same, of = same_samples(runs[0], run)
        print(f"{run.path.name}: raw samples of {same} of {of} measurements are those of the first run")
    print(table(found))
    text, agree = verdict(found)
    print(text)
    return agree


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2, help="how many benches (default: %(default)s)")
    parser.add_argument(
        "--load", type=int, default=0, help="processes that compute after the first run (default: none)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of measurements (default: %(default)s)")
    parser.add_argument("--environment", default="env/deterministic.yaml", help="(default: %(default)s)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where run folders go")
    parser.add_argument("--compare", type=Path, nargs="+", metavar="RUN", help="compare these runs, run none")
    parser.add_argument("--spread", type=Path, metavar="RUN", help="how far the boots of this run lie apart, run none")
    parser.add_argument("options", nargs="*", help="behind --: options of the bench")
    chosen = parser.parse_args()
    if chosen.spread:
        spread(chosen.spread)
        return 0
    if chosen.compare:
        return 0 if compare(chosen.compare) else 1
    chosen.results.mkdir(parents=True, exist_ok=True)
    options = ["--lg-env", chosen.environment, "--seed", str(chosen.seed), *chosen.options]
    folders: list[Path] = []
    for number in range(chosen.runs):
        started_s = time.monotonic()
        with busy(chosen.load if number else 0):
            folders.append(bench(chosen.results.absolute(), options))
        print(f"{folders[-1].name}: {time.monotonic() - started_s:.0f} s")
    return 0 if compare(folders) else 1


if __name__ == "__main__":
    sys.exit(main())
