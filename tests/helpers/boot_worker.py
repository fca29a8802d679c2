"""A board's process for a run, over fakes of the ports: `python -m boot_worker FD LAB`.

The kernel `dead` does not boot on any board. While the run's folder for results has a file `hold`, only the first boot
is made.
"""

from __future__ import annotations

import time
from pathlib import Path

from fake_bench import FACTS, FILES, IMAGE, PROFILE, answer

from fsjoule.bench.run import Bench
from fsjoule.errors import LabError
from fsjoule.runs.parallel.link import Link, serve
from fsjoule.runs.parallel.messages import Assignment, Boot, Done, Ready
from fsjoule.runs.parallel.worker import BootStore
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell

_LIMIT_S = 60.0


def _work(link: Link, _name: str) -> None:
    assignment: Assignment = link.receive()
    assert assignment.choice.boards > 1
    link.send(Ready(None, None))
    while (boot := link.receive()) is not None:
        if boot.number:
            _wait_while(assignment.choice.results / "hold")
        link.send(_booted(boot))


def _wait_while(file: Path) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def _booted(boot: Boot) -> Done:
    kernel = boot.entries[0].kernel
    if kernel == "dead":
        fault = LabError(f"{kernel} does not boot")
        return Done(boot.number, boot.run, fault=fault)
    store = BootStore(boot.run)
    board = FakeBoard(FakeShell(answer, dict(FILES)), FACTS, IMAGE)
    bench = Bench(boot.run, PROFILE, board, FakeMeter(), store, FakeClock(), lambda _: None, lambda _: None)
    bench.begin()
    for entry in boot.entries:
        bench.measure(entry)
    bench.finish()
    return Done(boot.number, store.run, tuple(store.stored), bench.boots, tuple(store.kept))


if __name__ == "__main__":
    serve(_work)
