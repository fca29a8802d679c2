"""How fast the index is: importing run folders, and asking for series, with a million made-up measurements.

Everything is timed from outside, through fsjoule's own functions: importing begins with run folders on the disk and
ends with committed rows. Folders are written in portions, and removed when they are imported. For comparison, some more
runs are then imported into the same index one row at a time.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, TypeVar

import numpy as np
import typer
from common import show
from sqlalchemy import Connection, Table, insert, select

from fsjoule.errors import ResultError
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Where
from fsjoule.store.index.catalogue import series_row
from fsjoule.store.index.database import Index, index_url, open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import list_series, points, stats
from fsjoule.store.index.run_rows import FolderFault, ReadRun, read_run
from fsjoule.store.index.schema import kernels, measurements, runs, series

# The runs are those of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from synthetic_runs import SyntheticLab

_PORTION_RUNS: Final = 100
_REPEATS: Final = 21
_COMMANDS: Final = 5
# What a verdict looks at.
_VERDICT: Final = (
    Metric.THROUGHPUT,
    Metric.ENERGY,
    Metric.CPU,
    Metric.WRITE_AMPLIFICATION,
    Metric.P99_LATENCY,
)

T = TypeVar("T")
Figures = dict[str, float | int | str | None]


def main(
    *,
    count: Annotated[int, typer.Option("--measurements", help="How many measurements to import.", min=1)] = 1_000_000,
    boards: Annotated[int, typer.Option(help="Boards; each has 15 series.", min=1)] = 20,
    row_by_row: Annotated[int, typer.Option(help="How many more to import row by row.", min=1)] = 4_000,
    index: Annotated[str | None, typer.Option(help="An empty index, by URL or file; a temporary file if none.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where temporary files go.")] = None,
    seed: Annotated[int, typer.Option(help="Of the figures.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure how fast the index imports and answers. Rates are measurements a second, times are medians in seconds.

    Example: python benchmarks/index_speed.py --measurements 100000 --json
    """
    with tempfile.TemporaryDirectory(prefix="index-speed-", dir=folder) as temporary:
        place = Path(temporary)
        figures = _measure(index or str(place / "index.sqlite"), place, SyntheticLab(boards, seed), count, row_by_row)
    show("index: rates in measurements a second, times in seconds (medians)", figures, as_json=as_json)


def _measure(location: str, place: Path, lab: SyntheticLab, count: int, row_by_row: int) -> Figures:
    wanted = -(-count // lab.measurements_per_run)
    url = index_url(location)
    figures: Figures = {
        "database": url.get_backend_name(),
        "python": platform.python_version(),
        "sqlalchemy": version("sqlalchemy"),
        "cpus": os.cpu_count(),
    }
    with open_index(location, create=True) as index:
        if stats(index).runs:
            raise ResultError(f"the index {index.name} is not empty", hint="this would add made-up runs to it")
        figures |= _import(index, place, lab, wanted)
        figures |= _ask(index)
        figures |= _trend(location)
        if url.get_backend_name() == "sqlite":
            figures["size_mib"] = Path(str(url.database)).stat().st_size / 2**20
        figures |= _import_row_by_row(index, place, lab, wanted, -(-row_by_row // lab.measurements_per_run))
    figures["import_ratio"] = float(figures["import_per_s"] or 0) / float(figures["row_by_row_per_s"] or 1)
    return figures


def _import(index: Index, place: Path, lab: SyntheticLab, wanted: int) -> Figures:
    """Import `wanted` runs in portions; the last portion twice."""
    spent_s: list[tuple[int, float]] = []
    spent_cpu_s = again_s = 0.0
    for first in range(0, wanted, _PORTION_RUNS):
        into = place / "results"
        written = sum(1 for _ in lab.write(into, first, min(_PORTION_RUNS, wanted - first)))
        cpu_s = time.process_time()
        seconds, _ = _timed(lambda: import_runs(index, [place / "results"]))
        spent_cpu_s += time.process_time() - cpu_s
        spent_s.append((written * lab.measurements_per_run, seconds))
        if first + written == wanted:
            again_s, _ = _timed(lambda: import_runs(index, [place / "results"]))
        shutil.rmtree(into)
        print(f"\r{first + written} of {wanted} runs imported", end="", file=sys.stderr)
    print(file=sys.stderr)
    last = spent_s[-max(1, len(spent_s) // 10) :]
    return {
        "import_per_s": _rate(spent_s),
        "import_per_cpu_s": sum(count for count, _ in spent_s) / spent_cpu_s,
        "import_last_tenth_per_s": _rate(last),
        "import_again_per_s": spent_s[-1][0] / again_s,
    }


def _rate(spent_s: list[tuple[int, float]]) -> float:
    return sum(count for count, _ in spent_s) / sum(seconds for _, seconds in spent_s)


def _ask(index: Index) -> Figures:
    """Time the queries that `fsjoule index series`, `compare` and `trend` make."""
    listing_s, listed = _timed(lambda: list_series(index))
    stats_s, held = _timed(lambda: stats(index))
    rng = np.random.default_rng(0)
    wheres = [Where(series=(listed[int(i)].series.key,)) for i in rng.integers(len(listed), size=_REPEATS)]
    one = [_timed(lambda w=w: points(index, w, metrics=(Metric.ENERGY,)))[0] for w in wheres]
    everything = [_timed(lambda w=w: points(index, w))[0] for w in wheres]
    by_kernel = [_timed(lambda w=w: points(index, w, metrics=_VERDICT, order=Order.KERNEL))[0] for w in wheres]
    board = Where(boards=(listed[0].series.series.board,))
    trend = [_timed(lambda: points(index, board, metrics=_VERDICT)) for _ in range(3)]
    return {
        "measurements": held.measurements,
        "runs": held.runs,
        "series": held.series,
        "points_per_series": held.measurements // held.series,
        "series_query_s": statistics.median(one),
        "series_query_slowest_s": max(one),
        "series_query_all_metrics_s": statistics.median(everything),
        "series_query_by_kernel_s": statistics.median(by_kernel),
        "trend_query_points": sum(map(len, trend[0][1].values())),
        "trend_query_s": statistics.median(seconds for seconds, _ in trend),
        "list_series_s": listing_s,
        "stats_s": stats_s,
    }


def _trend(location: str) -> Figures:
    """Time the command as its user does, from start to end; the first is for the page cache."""
    program = Path(sys.executable).with_name("fsjoule")
    spent: list[tuple[float, float]] = []
    for _ in range(1 + _COMMANDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, _ = _timed(
            lambda: subprocess.run([program, "trend", "--index", location], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append((seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    wall_s, cpu_s = zip(*spent[1:], strict=True)
    return {"trend_command_s": statistics.median(wall_s), "trend_command_cpu_s": statistics.median(cpu_s)}


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


# ------------------------------------------------------------------------------------------- one row at a time


def _import_row_by_row(index: Index, place: Path, lab: SyntheticLab, first: int, count: int) -> Figures:
    folders = list(lab.write(place / "more", first, count))
    seconds, rows = _timed(lambda: sum(_row_by_row(index, folder) for folder in folders))
    return {"row_by_row_measurements": rows, "row_by_row_per_s": rows / seconds}


def _row_by_row(index: Index, folder: Path) -> int:
    """Import a run as one would without a thought: each measurement found, inserted and committed by itself."""
    read = read_run(folder)
    if isinstance(read, FolderFault):
        raise ResultError(f"{read.path}: {read.reason}")
    for measurement in read.measurements:
        with index.writing() as connection:
            references = _references(connection, read)
            found = _number(connection, series, {"key": measurement.series.key}, series_row(measurement.series))
            row = {**measurement.columns, **references, "series": found}
            connection.execute(insert(measurements).values(row))
    return len(read.measurements)


def _references(connection: Connection, read: ReadRun) -> dict[str, int | None]:
    (kernel,) = read.kernels.values()
    identity: dict[str, object] = {"release": kernel.release, "version": kernel.version}
    kernel_number = _number(connection, kernels, identity, {**identity, "sort_key": kernel.order})
    row = {
        **read.columns,
        "fixed_digest": read.fixed_digest,
        "final_digest": read.final_digest,
    }
    return {"run": _number(connection, runs, {"run_id": read.run_id}, row), "kernel": kernel_number}


def _number(connection: Connection, table: Table, identity: dict[str, object], row: dict[str, object]) -> int:
    chosen = select(table.c.id).where(*(table.c[name] == value for name, value in identity.items()))
    found = connection.execute(chosen).scalar()
    if found is None:
        found = connection.execute(insert(table).values(row).returning(table.c.id)).scalar_one()
    return int(found)


if __name__ == "__main__":
    typer.run(main)
