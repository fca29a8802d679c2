"""A bench over fakes of the ports, what its board says of itself, and what it answers when all goes well."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import numpy as np
from traces import trace_of

from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.onboard.marks import THREADS
from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError
from fsjoule.model import MIB, BoardFacts, BoardProfile, ImageFacts, Mark, Plan, Planned, Run, RunStatus, Trace
from fsjoule.ports import CommandResult
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell, FakeStore

_REPORT = json.loads((Path(__file__).parents[1] / "unit" / "data" / "fio-3.33-write.json").read_text())
# It is the answer to any job.
_JOB = _REPORT["jobs"][0]
_REPORT["jobs"] = [{**_JOB, "job options": {}, "read": _JOB["write"], "mixed": _JOB["write"]}]
FIO_JSON = json.dumps(_REPORT).encode()
COUNTERS = b"cpu  100 0 50 800 20 0 5 0 0 0\n 10 0 80 5 20 0 160 9 0 30 14 0 0 0 0 2 1\n"
AFTER = b"cpu  150 0 80 900 30 0 10 0 0 0\n 14 0 112 5 30 0 16544 9 0 75 14 1 0 8 0 5 1\n"
PROFILE = BoardProfile("fake", "imx6ul", True, "/dev/ttymxc1", "mmcblk1", "/dev/mmcblk1p3", False, 1.0)
FACTS = BoardFacts("fake", "m", "6.1", "v", "c", 1, 512 * MIB, "card", 1024 * MIB, "bus", "ext4")
IMAGE = ImageFacts("imx6ul", "6.1", "p", "0" * 64, {}, {})


def answer(argv: tuple[str, ...]) -> CommandResult:
    """A board on which everything goes well."""
    output = COUNTERS.decode() if argv[:2] == ("cat", "/proc/stat") else ""
    output = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 1 0 0 20 0 1 0 0 0 0\n" if argv == THREADS else output
    output = "4096 1000 900\n" if argv[:2] == ("stat", "-f") else output
    return CommandResult(argv, 0, output)


def traced(
    *marks: str,
    runtime_s: float = 0.02,
    shunt_raw: int = 2500,
    missed: Collection[int] = (),
    lost: Collection[int] = (),
) -> Trace:
    """Three seconds of a constant load, with marks at the start of the work and at its end."""
    stop_us = 2_500_000 + round(runtime_s * 1e6)
    sent = [Mark(stop_us if text.startswith("E") else 2_500_000, text) for text in marks]
    return trace_of(np.full(3000, shunt_raw), marks=sent, missed=missed, lost=lost)


FILES = {
    onboard.RESULT: FIO_JSON,
    onboard.BEFORE: COUNTERS,
    onboard.AFTER: AFTER,
    onboard.DURATION: b"1.00 1.02 1.02 1\n0m0.0s 0m0.0s\n0m0.01s 0m0.01s\n",
}


def bench_of(*, shell: FakeShell, meter: FakeMeter, faults: list[BoardError] | None = None) -> BoardBench:
    shell.files.update(FILES)
    entries = plan_entries(suite("quick"), Planning(("ext4",), ("6.1",), repeat=1, seed=3)).entries
    plan = Plan("quick", ("ext4",), ("6.1",), 1, 3, {}, entries)
    run = Run("id", "1970-01-01T00:00:00Z", RunStatus.RUNNING, simulated=True, plan=plan)
    board = FakeBoard(shell, FACTS, IMAGE, faults or [])
    return BoardBench(run, PROFILE, board, meter, FakeStore(), FakeClock(), lambda _: None)


def entry(bench: BoardBench, slug: str) -> Planned:
    return next(e for e in bench.plan.entries if e.workload.slug == slug)


def runtime_s() -> float:
    return int(_JOB["write"]["runtime"]) / 1000
