"""A board's process for a run, over fakes of the ports: `python -m boot_worker FD LAB`.

The kernel `dead` does not boot on any board. While the run's folder for results has a file `hold`, only the first boot
is made. The boards whose labs its file `dead` names have lost a part; the other boards wait until each of them has
failed, and said so in the file `tried`. With a file `endless` each boot stops after a few measurements. Boards whose
labs `fails` names fail when they check crash states, and those in `other` record other writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from crash_shell import crash_shell
from fake_bench import FACTS, FILES, IMAGE, PROFILE, answer

from fsjoule.bench.crash.shared import shares_states
from fsjoule.bench.run import BoardBench
from fsjoule.bench.tries import fault_of
from fsjoule.errors import LabError
from fsjoule.model import Measurement
from fsjoule.runs.parallel.messages import Assignment, BootTask, Done, Ready
from fsjoule.runs.parallel.processes import Link, serve
from fsjoule.runs.parallel.worker import BootStore, claimed, make_boot
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell

_LIMIT_S = 60.0
_SOME = 3


def _work(link: Link, name: str) -> None:
    assignment: Assignment = link.receive()
    assert assignment.request.boards > 1
    results = assignment.request.results
    dead = (results / "dead").read_text().split() if (results / "dead").exists() else []
    link.send(Ready(None, None))
    fails, other = (name in _lines(results / file) for file in ("fails", "other"))
    while (boot := link.receive()) is not None:
        if name in dead:
            with (results / "tried").open("a") as tried:
                tried.write(f"{name} {boot.number}\n")
            link.send(_dead(name, boot))
            continue
        _wait_until(lambda: len(_lines(results / "tried")) >= len(dead))
        if boot.number:
            _wait_until(lambda: not (results / "hold").exists())
        shell = crash_shell("other" if other else "", partial(_fail, fails))
        crashes = shares_states(boot.entries[0])
        shell = shell if crashes else FakeShell(answer, dict(FILES))
        link.send(_booted(boot, link, shell, endless=(results / "endless").exists()))


def _fail(fails: bool) -> None:
    if fails:
        raise LabError("the outlet does not answer")


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)


def _dead(name: str, boot: BootTask) -> Done:
    error = LabError(f"the lab's outlet of {name} has died")
    now = "1970-01-01T00:00:00Z"
    fault = fault_of(error, boot.entries[0], started_utc=now, ended_utc=now, steps=())
    return Done(boot.number, replace(boot.run, faults=(fault,)), fault=error, dead=True)


def _booted(boot: BootTask, link: Link, shell: FakeShell, endless: bool) -> Done:
    kernel = boot.entries[0].kernel
    if kernel == "dead":
        fault = LabError(f"{kernel} does not boot")
        return Done(boot.number, boot.run, fault=fault)
    store = BootStore(boot.run, link.send)
    done: list[Measurement] = []
    board = FakeBoard(shell, FACTS, IMAGE)

    def measured(measurement: Measurement) -> None:
        done.append(measurement)
        if endless and len(done) == _SOME:
            _wait_until(lambda: False)

    bench = BoardBench(boot.run, PROFILE, board, FakeMeter(), store, FakeClock(), measured)
    bench.claim = partial(claimed, link)
    return make_boot(bench, boot, store, link)


if __name__ == "__main__":
    serve(_work)
