"""The process of a board in real time at a place of a pool, over fakes of the ports: `python -m place_worker FD ""`.

Each process takes the next of the places evk-1, evk-2 and so on that no other one has, by a file in the run's folder of
results. A place's meter has its name. Files there say what happens at places, one line each:

- `dies`: PLACE ENTRIES: the process ends after so many entries, in the midst of a block; once.
- `other`: PLACE: its card is of another make.
- `worked`, written here: PLACE BLOCK, for each block that was begun.

The kernel `dead` does not boot on any board. A block takes long enough for the other board to begin one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from pathlib import Path

from fake_bench import FACTS, FILES, IMAGE, PROFILE, answer, traced
from traces import INFO

from fsjoule.bench.boots import boot_key
from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError, LabError
from fsjoule.model import BoardFacts, LabFacts, Planned, Run, Trace
from fsjoule.runs.parallel.messages import Assignment, BootTask, Done, Ready
from fsjoule.runs.parallel.processes import Link, serve
from fsjoule.runs.parallel.worker import BootStore
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell

_BLOCK_S = 0.3
_LIMIT_S = 60.0


@dataclass
class Place:
    name: str
    results: Path
    facts: BoardFacts = FACTS
    entries: int = 0
    dies_after: int | None = None
    now: Planned | None = field(default=None)

    def trace(self) -> Trace:
        number = self.now.number if self.now is not None else 0
        found = traced(f"S{number}", f"E{number}")
        return replace(found, info=replace(INFO, serial_number=f"meter of {self.name}"))


def _place(results: Path) -> Place:
    for number in count(1):
        name = f"evk-{number}"
        try:
            (results / name).touch(exist_ok=False)
        except FileExistsError:
            continue
        other = [line.split()[0] for line in _lines(results / "other")]
        facts = replace(FACTS, storage="another card") if name in other else FACTS
        dies = {place: int(entries) for place, entries in map(str.split, _lines(results / "dies"))}
        return Place(name, results, facts, dies_after=dies.get(name))
    raise AssertionError("unreachable")


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _work(link: Link, name: str) -> None:
    assert name == "", "a place of a pool is nobody's own lab"
    assignment: Assignment = link.receive()
    place = _place(assignment.request.results)
    link.send(Ready(None, LabFacts(place.name, "lab:20408", (), None, "ci/ada")))
    (place.results / f"{place.name}.ready").touch()
    _wait_for_all(place.results, assignment.request.boards)
    while (boot := link.receive()) is not None:
        with (place.results / "worked").open("a") as worked:
            worked.write(f"{place.name} {boot.entries[0].repetition}\n")
        time.sleep(_BLOCK_S)
        link.send(_measured(place, boot, link))


def _wait_for_all(results: Path, boards: int) -> None:
    """Begin together: on a busy computer one process may be ready when another one has measured everything."""
    deadline = time.monotonic() + _LIMIT_S
    while len(list(results.glob("*.ready"))) < boards and time.monotonic() < deadline:
        time.sleep(0.05)


def _measured(place: Place, boot: BootTask, link: Link) -> Done:
    store, fault = BootStore(boot.run, link.send), None
    board = FakeBoard(FakeShell(answer, dict(FILES)), place.facts, IMAGE)
    bench = _bench(place, boot.run, board, store)
    bench.begin()
    for (_, kernel, *_), entries in groupby(boot.entries, key=boot_key):
        try:
            board.faults = [BoardError(f"{kernel} does not boot", transient=False)] if kernel == "dead" else []
            _measure(place, bench, tuple(entries))
        except LabError as error:
            fault = error
    bench.finish()
    return Done(boot.number, store.run, tuple(store.kept), fault)


def _bench(place: Place, run: Run, board: FakeBoard, store: BootStore) -> BoardBench:
    meter = FakeMeter(now=place.trace)
    return BoardBench(run, PROFILE, board, meter, store, FakeClock(), lambda _: None)


def _measure(place: Place, bench: BoardBench, entries: Sequence[Planned]) -> None:
    for entry in entries:
        if place.entries == place.dies_after:
            os._exit(9)
        place.now = entry
        bench.measure(entry)
        place.entries += 1


if __name__ == "__main__":
    serve(_work)
