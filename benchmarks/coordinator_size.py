"""What labgrid's coordinator costs with many places: processor time for a client that connects, and for changes.

    python benchmarks/coordinator_size.py --places 50,250,1000 --watching 20

Each place has a board with four resources, all of one exporter, none of which starts a program. A client that watches
is connected and hears of each change, as every run is. No board is needed.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Final

import yaml

from fsjoule.host import process
from fsjoule.lab.coordinator import Coordinator, connected
from fsjoule.virtual.lab.services import beside_python

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_QUIET_S: Final = 4.0
_IDLE: Final = 0.02
_LIMIT_S: Final = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Processor time of labgrid's coordinator with many places")
    parser.add_argument("--places", default="50,250,1000")
    parser.add_argument("--watching", type=int, default=20)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows: list[dict[str, float]] = []
    for places in map(int, given.places.split(",")):
        with tempfile.TemporaryDirectory() as folder, _coordinator(Path(folder), places) as running:
            rows.append({"places": places, **_measured(running, given.times, given.watching)})
        if not given.json:
            print("; ".join(f"{name}: {figure:.0f}" for name, figure in rows[-1].items()), flush=True)
    if given.json:
        print(json.dumps({"settings": vars(given), "rows": rows}))


def _measured(running: Popen[bytes], times: int, watching: int) -> dict[str, float]:
    def connect() -> None:
        with connected():
            pass

    found = {"a client connects, ms": _cost_ms(running, connect, times)}
    for clients in (0, watching):
        with ExitStack() as closing:
            for _ in range(clients):
                closing.callback(Coordinator().close)
            with connected() as own:
                cost_ms = _cost_ms(running, lambda: _acquire_and_release(own), times)
        found[f"a place is acquired and released with {clients} clients watching, ms"] = cost_ms
    return {**found, "resident memory, MiB": _memory_mib(running)}


def _acquire_and_release(coordinator: Coordinator) -> None:
    coordinator.acquire("board-0")
    coordinator.release("board-0")


def _cost_ms(running: Popen[bytes], act: Callable[[], None], times: int) -> float:
    """Milliseconds of the coordinator's processor time for each time, with all that follows from it, above idling."""
    _settle(running)
    idle = _share(running)
    before_s, began_s = _cpu_s(running), time.monotonic()
    for _ in range(times):
        act()
    _settle(running)
    spent_s = _cpu_s(running) - before_s - idle * (time.monotonic() - began_s)
    return spent_s / times * 1000


def _settle(running: Popen[bytes]) -> None:
    """Wait until the coordinator is next to idle."""
    deadline = time.monotonic() + _LIMIT_S
    while _share(running) > _IDLE and time.monotonic() < deadline:
        pass


def _share(running: Popen[bytes]) -> float:
    """The share of a processor that the coordinator takes for some seconds."""
    before_s = _cpu_s(running)
    time.sleep(_QUIET_S)
    return (_cpu_s(running) - before_s) / _QUIET_S


def _cpu_s(running: Popen[bytes]) -> float:
    fields = Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory_mib(running: Popen[bytes]) -> int:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{running.pid}/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) // 1024


@contextmanager
def _coordinator(folder: Path, places: int) -> Generator[Popen[bytes]]:
    """A coordinator with so many places, and LG_COORDINATOR for it; its exporter has the resources of all."""
    names = [f"board-{number}" for number in range(places)]
    match = {"exporter": "*", "cls": "*"}
    bare = {"aliases": [], "comment": "", "created": 0.0, "changed": 0.0}
    kept = {name: {**bare, "tags": {}, "matches": [{**match, "group": name}]} for name in names}
    (folder / "places.yaml").write_text(yaml.safe_dump(kept))
    resources = {
        "NetworkPowerPort": {"model": "rest", "host": "http://127.0.0.1:9/{index}", "index": 0},
        "default": {"cls": "NetworkSerialPort", "host": "127.0.0.1", "port": 9},
        "meter": {"cls": "NetworkSerialPort", "host": "127.0.0.1", "port": 9},
        "NetworkService": {"address": "127.0.0.1", "username": "root"},
    }
    (folder / "exporter.yaml").write_text(yaml.safe_dump({name: copy.deepcopy(resources) for name in names}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    os.environ["LG_COORDINATOR"] = address
    with ExitStack() as closing:

        def start(program: str, *arguments: str) -> Popen[bytes]:
            argv = [beside_python(program), *arguments]
            started = process.start(argv, log=folder / f"{program}.log", cwd=folder)
            closing.callback(process.stop, started, timeout_s=_LIMIT_S)
            return started

        running = start("labgrid-coordinator", "-l", address)
        time.sleep(_QUIET_S)
        names_it = ("--coordinator", address, "--name", "all", "--hostname", "127.0.0.1")
        start("labgrid-exporter", *names_it, str(folder / "exporter.yaml"))
        deadline = time.monotonic() + _LIMIT_S
        while not _has_all(places):
            if time.monotonic() > deadline:
                sys.exit(f"the exporter has not exported all resources within {_LIMIT_S:.0f} s")
            time.sleep(1.0)
        yield running


def _has_all(places: int) -> bool:
    with connected() as coordinator:
        return all(coordinator.unmatched(coordinator.places[f"board-{n}"]) is None for n in (0, places - 1))


if __name__ == "__main__":
    main()
