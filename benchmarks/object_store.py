"""How much an object store costs: pushing runs twice, and importing them from there and from the local disk.

The server is moto's, in a process of its own, or any other: --store names a new folder of runs there, and AWS's
variables the way to it. Two thirds of a run's bytes are traces of its own, as random as samples are; the rest are
documents, and a table of the card's programs.
"""

from __future__ import annotations

import http.client
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer
from common import show

from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.objects.address import parse_address
from fsjoule.store.objects.archives import listed_runs
from fsjoule.store.objects.bucket import Bucket, open_bucket
from fsjoule.store.objects.cache import copies
from fsjoule.store.objects.transfers import prune, pull_runs, push_runs

# The runs are those of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from synthetic_runs import SyntheticLab

_PROGRAMS_BYTES: Final = 180 * 1024
_START_S: Final = 60.0
_PULLED: Final = 100
_MIB: Final = 1 << 20
_ALL: Final = timedelta(days=10_000)

T = TypeVar("T")
Figures = dict[str, float | int | str | None]


def main(
    *,
    runs: Annotated[int, typer.Option(help="How many runs.", min=2)] = 1000,
    traces: Annotated[int, typer.Option(help="Traces of each run.", min=0)] = 2,
    trace_kib: Annotated[int, typer.Option(help="Size of a trace.", min=64)] = 240,
    store: Annotated[str | None, typer.Option(help="s3://BUCKET/PREFIX, an empty folder of a running server.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where temporary files go.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure an object store side by side with the local disk.

    Example: python benchmarks/object_store.py --runs 100
    """
    with tempfile.TemporaryDirectory(prefix="object-store-", dir=folder) as temporary:
        place = Path(temporary)
        os.environ["FSJOULE_CACHE_DIR"] = str(place / "cache")
        with _served(place, store) as address:
            figures = _measure(open_bucket(parse_address(address)), place, runs, traces, trace_kib * 1024)
    show("object store: times in seconds", {"server": store or "moto", **figures}, as_json=as_json)


def _measure(bucket: Bucket, place: Path, count: int, traces: int, trace_bytes: int) -> Figures:
    results = place / "results"
    programs = secrets.token_bytes(_PROGRAMS_BYTES)
    folders: list[Path] = []
    for path in SyntheticLab(4, 1).write(results, 0, count):
        (path / "programs.parquet").write_bytes(programs)
        for measured in sorted((path / "measurements").iterdir())[:traces]:
            (measured / "trace.parquet").write_bytes(secrets.token_bytes(trace_bytes))
        folders.append(path)
    files = sum(path.is_file() for path in results.rglob("*"))
    first_s, first = _timed(lambda: push_runs(bucket, folders))
    second_s, second = _timed(lambda: push_runs(bucket, folders))
    assert (first.new, second.known, second.sent_bytes) == (count, count, 0), "each run is sent once"
    newest = [run.name for run in listed_runs(bucket)][-_PULLED:]
    pull_s, pulled = _timed(lambda: pull_runs(bucket, newest, place / "there"))
    assert pulled.new == len(newest)
    _import(place / "warm.sqlite", lambda: {folders[0]: str(folders[0])})  # modules are loaded
    local_s = _import(place / "local.sqlite", lambda: {path: str(path) for path in folders})

    def fetched() -> dict[Path, str]:
        made = copies(bucket.address, documents=True)
        assert all(each.problem is None for each in made)
        return {each.folder.resolve(): str(each.address) for each in made}

    store_s = _import(place / "store.sqlite", fetched)
    cached_s = _import(place / "cached.sqlite", fetched)
    prune_s, pruned = _timed(lambda: prune(bucket, _ALL, remove=False))
    assert (pruned.kept_runs, pruned.superseded) == (count, 0)
    return {
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "runs": count,
        "files": files,
        "mib": first.bytes / _MIB,
        "sent_mib": first.sent_bytes / _MIB,
        "sent_share": first.sent_bytes / first.bytes,
        "first_push_s": first_s,
        "first_push_runs_per_s": count / first_s,
        "second_push_s": second_s,
        "second_push_ratio": second_s / first_s,
        "pull_runs_per_s": len(newest) / pull_s,
        "import_local_s": local_s,
        "import_from_store_s": store_s,
        "import_from_store_ratio": store_s / local_s,
        "import_from_copies_s": cached_s,
        "import_from_copies_ratio": cached_s / local_s,
        "prune_dry_run_s": prune_s,
    }


def _import(location: Path, folders: Callable[[], dict[Path, str]]) -> float:
    def run() -> int:
        wanted = folders()
        with open_index(str(location), create=True) as index:
            return import_runs(index, wanted, known_as=wanted).new

    seconds, new = _timed(run)
    assert new > 0
    return seconds


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


@contextmanager
def _served(place: Path, store: str | None) -> Generator[str]:
    """The address of an empty folder of runs: the one that was named, or one of moto's server."""
    if store is not None:
        yield store
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (
        (place / "moto.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,  # noqa: S603 - our own
    ):
        try:
            _make_bucket(port)
            keys = {"AWS_ACCESS_KEY_ID": "lab", "AWS_SECRET_ACCESS_KEY": "lab"}
            os.environ.update(keys, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
            yield "s3://lab/boards"
        finally:
            server.terminate()


def _make_bucket(port: int) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_S)
            connection.request("PUT", "/lab")
            connection.getresponse().read()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    typer.run(main)
