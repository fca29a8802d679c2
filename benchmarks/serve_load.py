"""How fast `fsjoule serve` answers 50 readers who look at its pages for a minute, over an index of made-up runs.

The service runs in a process of its own. Each reader is a thread with a connection that stays open, as browsers have;
what it does is drawn from the usual mix, and it thinks for a moment between two pages. It keeps what it has seen, and
asks with its entity tag when it comes back. The first look at each address, before the minute, is told apart: then the
pages are made.
"""

from __future__ import annotations

import gzip
import http.client
import os
import platform
import random
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer
from common import show

from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import stats
from fsjoule.store.index.run_list import WhichRuns, list_runs

# The runs are those of the tests, and so is the way to start a command.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from command_line import started
from postgres_server import running_server
from synthetic_runs import SyntheticLab

_PORTION: Final = 100
_TIMEOUT_S: Final = 60.0
_STATIC: Final = re.compile(rb'(?:href|src)="(/static/[^"]+)"')
# How many of a hundred looks go to each kind of page.
_MIX: Final = {"start": 20, "trend": 30, "series": 15, "run": 20, "runs": 7, "compare": 5, "json": 3}


def main(
    *,
    measurements: Annotated[int, typer.Option(min=1000, help="How many measurements the index has.")] = 100_000,
    boards: Annotated[int, typer.Option(min=1, help="Boards; each has 15 series.")] = 20,
    readers: Annotated[int, typer.Option(min=1, help="Readers at once.")] = 50,
    seconds: Annotated[float, typer.Option(min=1, help="How long they look.")] = 60.0,
    think: Annotated[float, typer.Option(min=0, help="Seconds between two pages of a reader, on average.")] = 2.0,
    processes: Annotated[int, typer.Option(min=1, help="The service's processes that make pages.")] = 2,
    lab: Annotated[
        Path | None, typer.Option(help="Keep the index and its last run folders here, or use those.")
    ] = None,
    postgresql: Annotated[
        bool, typer.Option("--postgresql", help="The index is on a PostgreSQL server of its own.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of figures and of readers.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure the answers' times. Times are in milliseconds, until the last byte.

    Example: python benchmarks/serve_load.py --readers 50 --seconds 60
    """
    with ExitStack() as closing:
        place = lab or Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="serve-load-")))
        location = str(place / "index.sqlite")
        if postgresql:
            location = closing.enter_context(running_server()).new_database()
        if postgresql or not Path(location).exists():
            _write(place, location, SyntheticLab(boards, seed), measurements)
        result: dict[str, Any] = {
            "python": platform.python_version(),
            "fastapi": version("fastapi"),
            "uvicorn": version("uvicorn"),
            "cpus": os.cpu_count(),
            "load_before": os.getloadavg()[0],
        }
        with open_index(location) as index:
            result["measurements"] = stats(index).measurements
            newest = [run.run_id for run in list_runs(index, WhichRuns(), count=60)]
        words = ("serve", "--index", location, "--port", 0, "--processes", processes, "--time-limit", 60)
        service = started(closing, *words)
        assert service.stdout is not None
        address = service.stdout.readline().strip()
        found = _addresses(newest, boards)
        result |= _first_looks(address, found)
        result |= _loaded_by_a_browser(address, newest[0])
        result |= _minute(address, found, readers=readers, seconds=seconds, think_s=think, seed=seed)
        result["load_after"] = os.getloadavg()[0]
        service.terminate()
        began_s = time.monotonic()
        service.wait(_TIMEOUT_S)
        result["end_ms"] = 1000 * (time.monotonic() - began_s)
    show("fsjoule serve: times in ms", result, as_json=as_json)


def _write(place: Path, location: str, lab: SyntheticLab, measurements: int) -> None:
    """Make the index. The folders of its last runs stay, the others are elsewhere, as in a lab."""
    runs = -(-measurements // lab.measurements_per_run)
    with open_index(location, create=True) as index:
        for first in range(0, runs, _PORTION):
            is_last = first + _PORTION >= runs
            into = place / ("results" if is_last else "elsewhere")
            for _ in lab.write(into, first, min(_PORTION, runs - first)):
                pass
            import_runs(index, [into])
            if not is_last:
                shutil.rmtree(into)


def _addresses(runs: list[str], boards: int) -> dict[str, list[str]]:
    """What readers look at, by kind."""
    names = [f"board{number:02d}" for number in range(min(boards, 10))]
    trends = [f"/trend?board={name}" for name in names] + [f"/trend?board={name}&fs=btrfs" for name in names]
    return {
        "start": ["/"],
        "trend": ["/trend", "/trend?page=2", "/trend?by=kernel", "/trend?metric=energy", *trends],
        "series": [f"/trend?board={name}&workload=read-16k&fs=ext4" for name in names],
        "run": [f"/run/{run}" for run in runs[:20]],
        "runs": ["/runs", "/runs?page=2", *(f"/runs?board={name}" for name in names)],
        # The boards take turns, so that every one of them is compared with itself.
        "compare": [f"/compare?baseline=run:{a}&candidate=run:{b}" for a, b in zip(runs, runs[boards:], strict=False)][
            :8
        ],
        "json": ["/trend.json?board=board00", "/runs.json", f"/run/{runs[0]}.json"],
    }


@dataclass
class _Reader:
    """One reader: a connection that stays open, and what has been seen."""

    address: str
    tags: dict[str, str] = field(default_factory=dict[str, str])
    files: set[str] = field(default_factory=set[str])
    taken: list[tuple[str, float, int]] = field(default_factory=list[tuple[str, float, int]])
    statuses: Counter[int] = field(default_factory=Counter[int])
    _connection: http.client.HTTPConnection | None = None

    def look(self, kind: str, path: str) -> None:
        """Load a page, and those of its files that have not been loaded yet."""
        body = self._get(kind, path)
        for file in _STATIC.findall(body):
            name = file.decode()
            if name not in self.files:
                self._get("file", name)
                self.files.add(name)

    def _get(self, kind: str, path: str) -> bytes:
        headers = {"Accept-Encoding": "gzip", "Accept": "text/html,*/*;q=0.8"}
        if path in self.tags:
            headers["If-None-Match"] = self.tags[path]
        began_s = time.perf_counter()
        if self._connection is None:
            self._connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=_TIMEOUT_S)
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        self.taken.append((kind, 1000 * (time.perf_counter() - began_s), len(body)))
        self.statuses[answer.status] += 1
        if answer.status == http.client.OK and (tag := answer.headers["ETag"]):
            self.tags[path] = tag
        return gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _first_looks(address: str, found: dict[str, list[str]]) -> dict[str, Any]:
    """Every address once: pages are made."""
    reader = _Reader(address)
    for kind, paths in found.items():
        for path in paths:
            reader.look(kind, path)
    reader.close()
    assert set(reader.statuses) == {http.client.OK}, reader.statuses
    told: dict[str, Any] = {"pages": sum(map(len, found.values()))}
    for kind in found:
        times = [ms for each, ms, _ in reader.taken if each == kind]
        told |= {f"made_{kind}_median": statistics.median(times), f"made_{kind}_slowest": max(times)}
    return told


def _loaded_by_a_browser(address: str, run: str) -> dict[str, Any]:
    """Bytes and requests of a reader who comes for the first time, and of one who has the files."""
    told: dict[str, Any] = {}
    pages = {"start": "/", "trend": "/trend", "run": f"/run/{run}", "runs": "/runs"}
    for name, path in pages.items():
        reader = _Reader(address)
        for when in ("first", "again"):
            reader.taken.clear()
            reader.look(name, path)
            told |= {f"{name}_{when}_requests": len(reader.taken)}
            told |= {f"{name}_{when}_kib": sum(size for _, _, size in reader.taken) / 1024}
            # The page may have changed, its files have not.
            reader.tags.clear()
        reader.close()
    return told


def _minute(
    address: str, found: dict[str, list[str]], *, readers: int, seconds: float, think_s: float, seed: int
) -> dict[str, Any]:
    until_s = time.monotonic() + seconds
    crowd = [_Reader(address) for _ in range(readers)]
    threads = [
        threading.Thread(target=_read, args=(reader, found, until_s, think_s, random.Random(seed + number)))  # noqa: S311
        for number, reader in enumerate(crowd)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [each for reader in crowd for each in reader.taken]
    statuses: Counter[int] = Counter()
    for reader in crowd:
        statuses.update(reader.statuses)
    times = sorted(ms for _, ms, _ in taken)
    told: dict[str, Any] = {
        "readers": readers,
        "seconds": seconds,
        "requests": len(taken),
        "requests_per_s": len(taken) / seconds,
        "statuses": ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items())),
        "p50": _quantile(times, 0.5),
        "p95": _quantile(times, 0.95),
        "p99": _quantile(times, 0.99),
        "slowest": times[-1],
    }
    for kind in (*_MIX, "file"):
        some = sorted(ms for each, ms, _ in taken if each == kind)
        if some:
            told[f"{kind}_p95"] = _quantile(some, 0.95)
    return told


def _read(reader: _Reader, found: dict[str, list[str]], until_s: float, think_s: float, rng: random.Random) -> None:
    kinds, weights = list(_MIX), list(_MIX.values())
    time.sleep(rng.random() * think_s)
    while time.monotonic() < until_s:
        kind = rng.choices(kinds, weights)[0]
        reader.look(kind, rng.choice(found[kind]))
        time.sleep(rng.random() * 2 * think_s)
    reader.close()


def _quantile(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))]


if __name__ == "__main__":
    typer.run(main)
