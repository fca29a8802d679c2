"""The index of a whole lab: many writers at once into one PostgreSQL, which is killed meanwhile, and its answers.

Rows are made in memory and written by the importer's own `Writer`, in its batches, because reading run folders takes
longer than writing them (`index_speed.py` measures that). Every twentieth run comes from two writers, as from two
machines with copies of it. Half-way the server and all its workers get SIGKILL; it starts again, and the writers repeat
their batch. At the end the index must have every measurement once: counts are compared, and the sum of a hash over all
of them, which the writers have made from what they were to write.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from common import show
from sqlalchemy import select, text

from fsjoule.errors import IndexServerError, ResultError
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Where
from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.queries import list_series, points, stats
from fsjoule.store.index.retention import Retention, planned, prune
from fsjoule.store.index.run_rows import ReadRun
from fsjoule.store.index.schema import measurements, runs
from fsjoule.store.index.writer import Writer

# The runs and the server are those of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from pgbouncer import running_pgbouncer
from postgres_server import PostgresServer, running_server
from synthetic_rows import SyntheticRows

_BATCH_RUNS: Final = 45  # the importer's 2000 measurements
_TWICE: Final = 20
_QUERIES: Final = 200
_PRUNED: Final = 50  # of so many runs one
_LONG_TREND: Final = 360_000
_RETRY_S: Final = 0.2
_GIVE_UP_S: Final = 300.0
_HASH: Final = 2**64
_SETTINGS: Final = ("shared_buffers=1GB", "max_wal_size=8GB", "checkpoint_timeout=15min", "work_mem=32MB")

Figures = dict[str, float | int | str | None]


@dataclass(frozen=True)
class Task:
    """The runs of one writer: `first`, and every `step`th after it, below `end`."""

    location: str
    first: int
    step: int
    end: int


def main(
    *,
    count: Annotated[int, typer.Option("--measurements", help="How many measurements to write.", min=1)] = 1_000_000,
    writers: Annotated[int, typer.Option(help="Processes that write at once.", min=1)] = 8,
    boards: Annotated[int, typer.Option(help="Types of boards; each has 15 series.", min=1)] = 20,
    night: Annotated[int, typer.Option(help="Runs of the new night.", min=1)] = 1440,
    pool: Annotated[int, typer.Option(help="Connections behind PgBouncer; 0 goes without it.", min=0)] = 8,
    kill: Annotated[bool, typer.Option(help="Kill the server half-way.")] = True,
    folder: Annotated[Path | None, typer.Option(help="Where the server keeps its data.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure a lab's index on a PostgreSQL server of its own, which flushes to the disk as it does by default.

    Example: python benchmarks/index_lab.py --measurements 10000000 --json
    """
    with ExitStack() as stack:
        # The detector's answers are kept in a cache of its own, empty at first.
        os.environ["FSJOULE_CACHE_DIR"] = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        server = stack.enter_context(running_server(*_SETTINGS, within=folder))
        location = server.new_database()
        address = location
        if pool:
            address = stack.enter_context(running_pgbouncer(server, pool=pool)).before(location)
        lab = SyntheticRows(boards)
        wanted = -(-count // lab.measurements_per_run)
        figures: Figures = {
            "python": platform.python_version(),
            "sqlalchemy": version("sqlalchemy"),
            "cpus": os.cpu_count(),
            "writers": writers,
            "connections_behind_pgbouncer": pool,
            "load_before": os.getloadavg()[0],
        }
        figures |= _fill(server, address, lab, (wanted, writers), kill=kill)
        with open_index(address) as index:
            figures |= _size(index) | _ask(server, index) | _trends(server, address, "")
            new = range(wanted, wanted + night)
            figures |= _one_board(server, index, address, lab, new)
            figures |= _night(server, index, address, lab, new)
            figures |= _prune(index, lab, wanted // _PRUNED)
        figures["load_after"] = os.getloadavg()[0]
        figures["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    show("index of a lab: rates in measurements a second, times in seconds", figures, as_json=as_json)


# -------------------------------------------------------------------------------------------------- writing


def _fill(server: PostgresServer, address: str, lab: SyntheticRows, size: tuple[int, int], *, kill: bool) -> Figures:
    """Write `size` runs by writers; the server is killed half-way."""
    wanted, writers = size
    open_index(address, create=True).close()
    context = multiprocessing.get_context("fork")
    done: Synchronized[int] = context.Value("q", 0)
    results: Queue[dict[str, int]] = context.Queue()
    tasks = [Task(address, first, writers, wanted) for first in range(writers)]
    started_s = time.perf_counter()
    processes = [context.Process(target=_write, args=(lab, task, done, results)) for task in tasks]
    for one in processes:
        one.start()
    down_s = 0.0
    at_kill: int | None = None
    said_s = time.perf_counter()
    while any(one.is_alive() for one in processes) and results.qsize() < writers:
        time.sleep(0.05)
        if kill and at_kill is None and done.value * 2 >= wanted:
            at_kill = done.value
            killed_s = time.perf_counter()
            server.kill()
            server.start()
            down_s = time.perf_counter() - killed_s
        if time.perf_counter() - said_s > 10:
            said_s = time.perf_counter()
            rate = done.value * lab.measurements_per_run / (said_s - started_s)
            print(f"{done.value} of {wanted} runs, {rate:,.0f} measurements/s", file=sys.stderr, flush=True)
    found = [results.get(timeout=_GIVE_UP_S) for _ in processes]
    spent_s = time.perf_counter() - started_s
    for one in processes:
        one.join(_GIVE_UP_S)
    expected = sum(each["hash"] for each in found) % _HASH
    checking_s = time.perf_counter()
    held, runs_held, seen = _held(address)
    if (held, runs_held, seen) != (wanted * lab.measurements_per_run, wanted, expected):
        raise ResultError(f"the index has {held} measurements of {runs_held} runs, hash {seen:x}, not {expected:x}")
    return {
        "measurements": held,
        "runs": runs_held,
        "inserts_per_s": held / spent_s,
        "inserts_per_s_without_the_restart": held / (spent_s - down_s),
        "sent_twice": sum(each["twice"] for each in found) * lab.measurements_per_run,
        "killed_after_runs": at_kill,
        "killed_and_answering_again_s": down_s,
        "batches_repeated": sum(each["repeated"] for each in found),
        "every_measurement_once": "yes: counts and hashes agree",
        "checked_in_s": time.perf_counter() - checking_s,
    }


def _write(lab: SyntheticRows, task: Task, done: Synchronized[int], results: Queue[dict[str, int]]) -> None:
    """Write a task's runs, and some of its neighbour's; a batch that failed is repeated until it is written."""
    seen = repeated = twice = 0
    mine = range(task.first, task.end, task.step)
    with open_index(task.location) as index:
        writer = Writer()
        for at in range(0, len(mine), _BATCH_RUNS):
            batch = [lab.run(number) for number in mine[at : at + _BATCH_RUNS]]
            seen += sum(map(_hash_of, batch))
            others = [n + 1 for n in mine[at : at + _BATCH_RUNS] if n % _TWICE == 0 and n + 1 < task.end]
            others = others if task.step > 1 else []
            twice += len(others)
            batch += map(lab.run, others)
            until_s = time.monotonic() + _GIVE_UP_S
            while True:
                try:
                    with index.writing() as connection:
                        written = writer.write(connection, batch)
                    break
                except IndexServerError:
                    if time.monotonic() > until_s:
                        raise
                    repeated += 1
                    writer = Writer()  # what it remembers may not have been committed
                    time.sleep(_RETRY_S)
            if written.conflicts:
                raise ResultError(written.conflicts[0].reason)
            with done.get_lock():
                done.value += len(mine[at : at + _BATCH_RUNS])
    results.put({"hash": seen % _HASH, "repeated": repeated, "twice": twice})


def _hash_of(run: ReadRun) -> int:
    figures = itemgetter("duration_s", "energy_mj_per_mib")
    return sum(_hash(run.run_id, each.number, each.digest, *figures(each.columns)) for each in run.measurements)


def _hash(run_id: str, number: int, digest: bytes, duration_s: float, energy: float | None) -> int:
    packed = struct.pack("<q16sdd", number, digest, duration_s, energy or 0.0)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8, key=run_id.encode()).digest())


def _held(address: str) -> tuple[int, int, int]:
    """Count and hash all measurements, a thousand runs at a time."""
    columns = measurements.c
    asked = (runs.c.run_id, columns.number, columns.digest, columns.duration_s, columns.energy_mj_per_mib)
    count = seen = 0
    with open_index(address) as index, index.reading() as connection:
        ids = list(connection.execute(select(runs.c.id).order_by(runs.c.id)).scalars())
        for at in range(0, len(ids), 1000):
            inside = columns.run.between(ids[at], ids[min(at + 1000, len(ids)) - 1])
            rows = connection.execute(select(*asked).join(runs, runs.c.id == columns.run).where(inside)).all()
            count += len(rows)
            seen += sum(_hash(*row) for row in rows)
    return count, len(ids), seen % _HASH


# -------------------------------------------------------------------------------------------------- asking


def _size(index: Index) -> Figures:
    with index.writing() as connection:
        begun_s = time.perf_counter()
        connection.execute(text("ANALYZE"))
        analyzed_s = time.perf_counter() - begun_s
        whole = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
        asked = "SELECT pg_table_size('measurements'), pg_indexes_size('measurements')"
        table, indexes = connection.execute(text(asked)).one()
    mib = {"size_mib": whole, "size_of_measurements_mib": table, "size_of_their_indexes_mib": indexes}
    return {name: size / 2**20 for name, size in mib.items()} | {"analyze_s": analyzed_s}


def _ask(server: PostgresServer, index: Index) -> Figures:
    with _timed() as listing:
        listed = list_series(index)
    with _timed() as held:
        stats(index)
    rng = np.random.default_rng(0)
    chosen = [listed[int(i)].series.key for i in rng.integers(len(listed), size=_QUERIES)]
    figures: Figures = {"series": len(listed), "list_series_s": listing[0], "stats_s": held[0]}
    queries = {
        # Of the newest 1000 figures, as `fsjoule index series` shows them: in one metric, in all eleven, by kernel.
        "series_query": (1000, (Metric.ENERGY,), Order.TIME, chosen),
        "series_query_all_metrics": (1000, tuple(Metric), Order.TIME, chosen),
        "series_query_by_kernel": (1000, (Metric.ENERGY,), Order.KERNEL, chosen),
        "whole_series_query": (None, (Metric.ENERGY,), Order.TIME, chosen[: _QUERIES // 10]),
    }
    for name, (at_most, metrics, order, keys) in queries.items():
        spent: list[float] = []
        found = 0
        cpu_s = _cpu_s(server)
        for key in keys:
            with _timed() as one:
                answer = points(index, Where(series=(key,)), metrics=metrics, order=order, at_most=at_most)
            found = sum(map(len, answer.values()))
            spent += one
        figures |= {f"{name}_points": found, **_p50_p95(name, spent)}
        figures[f"{name}_cpu_s"] = (_cpu_s(server) - cpu_s) / len(keys)
    return figures


def _p50_p95(name: str, spent_s: list[float]) -> Figures:
    p95 = statistics.quantiles(spent_s, n=20)[-1]
    return {f"{name}_p50_s": statistics.median(spent_s), f"{name}_p95_s": p95}


def _one_board(server: PostgresServer, index: Index, address: str, lab: SyntheticRows, new: range) -> Figures:
    """The first runs of the night are of one board, so that the series of all others have nothing new."""
    first = [lab.run(number) for number in new[: 60 * lab.boards : lab.boards]]
    with index.writing() as connection:
        Writer().write(connection, first)
    return _trend(server, address, "trend_after_one_board")


def _night(server: PostgresServer, index: Index, address: str, lab: SyntheticRows, new: range) -> Figures:
    writer, added = Writer(), 0
    with _timed() as spent:
        for at in range(0, len(new), _BATCH_RUNS):
            with index.writing() as connection:
                # Those of the one board are known already.
                added += writer.write(connection, map(lab.run, new[at : at + _BATCH_RUNS])).measurements
    return {"night_measurements": added, "night_written_s": spent[0]} | _trends(server, address, "_after_the_night")


def _prune(index: Index, lab: SyntheticRows, count: int) -> Figures:
    """Remove the oldest runs, of all branches."""
    retention = Retention(str(lab.run(count).columns["started_utc"]))
    with _timed() as looked:
        found = planned(index, retention)
    with _timed() as spent:
        prune(index, retention)
    return {"pruned_measurements": found.measurements, "pruning_planned_s": looked[0], "pruned_in_s": spent[0]}


def _trends(server: PostgresServer, location: str, when: str) -> Figures:
    """The nightly update as it is by default, with six times as much of each history, and of one topic branch."""
    return {
        **_trend(server, location, f"trend{when}"),
        **_trend(server, location, f"trend{when}_recomputed", "--recompute"),
        **_trend(server, location, f"long_trend{when}", "--branch", "main", "--limit", str(_LONG_TREND)),
        **_trend(server, location, f"trend_of_a_branch{when}", "--branch", "topic-10"),
    }


def _trend(server: PostgresServer, location: str, name: str, *arguments: str) -> Figures:
    """Time the command as its user does, from start to end, and again, when nothing is new."""
    program = Path(sys.executable).with_name("fsjoule")
    argv = [str(program), "trend", "--index", location, *arguments]
    figures: Figures = {}
    for time_of in ("", "_again"):
        cpu_s = _cpu_s(server)
        with _timed() as spent:
            told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own
        figures |= {f"{name}{time_of}_s": spent[0], f"{name}{time_of}_cpu_s": _cpu_s(server) - cpu_s}
        figures[f"{name}_says"] = next(line for line in told.splitlines() if " histories of " in line)
    return figures


@contextmanager
def _timed() -> Generator[list[float]]:
    spent: list[float] = []
    started = time.perf_counter()
    yield spent
    spent.append(time.perf_counter() - started)


def _cpu_s(server: PostgresServer) -> float:
    """The processor time of this process, of the commands that it has started, and of the server."""
    own, commands = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return server.cpu_s() + own.ru_utime + own.ru_stime + commands.ru_utime + commands.ru_stime


if __name__ == "__main__":
    typer.run(main)
