"""Whether a crash state's fate depends on the states that were checked before it, and what checking costs.

python tests/statistics/crash_alone.py --fs ext4:nobarrier,vfat,f2fs --states 400
python tests/statistics/crash_alone.py --fs ext4 --rounds 2,4,8,16 --states 200 --first

Runs `crash-files.sh` on the deterministic board. Up to `--states` of its states, evenly spread over the log, are
checked as a bench checks them: in the log's order, above a base to which each epoch's writes are added. Then each is
checked alone, in shuffled order: the base is again what mkfs has made, and all later writes of the state are a table
over the log, so that nothing of another state is in it. The base's digest says that no check has changed it. `--first`
leaves that out. Exit code 1 if a fate, or its details, differ.

In the bench's process this file is a plug-in of pytest that puts `AloneWork` into the place of `CrashWork`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import fsjoule.bench.run
from fsjoule.bench.crash import onboard
from fsjoule.bench.crash.check import _LINE, Checked, CrashWork, Recording
from fsjoule.bench.judge import WorkFacts
from fsjoule.bench.measurer import Measurer
from fsjoule.bench.scratch import checked
from fsjoule.model import KIB, MIB
from fsjoule.model.filesystem import Filesystem
from fsjoule.model.write_log import State, WriteLog, _painted

PROJECT: Final = Path(__file__).parents[2]
_SETTINGS: Final = "FSJOULE_CRASH_ALONE"
_PROGRAM: Final = "crash-files.sh"
_BASE: Final = f"{onboard.FOLDER}/base"
_ORDER_S: Final = 600.0
_BATCH: Final = 20
_TIMEOUT_S: Final = 4 * 3600.0
_SUITE: Final = """\
[suite]
title = "crash states, each alone"
repeat = 1
"""
_WORKLOAD: Final = """
[[suite.workload]]
operation = "crash-states"
name = "files-{rounds}"
command = ["./{program}", "{rounds}"]
files = ["{program}"]
"""


@dataclass
class Outcome:
    """What one measurement has found, and what it took.

    `writes` and `different` are those of the whole log. `first_s` and `alone_s` are seconds of this computer's clock
    for all `states`, `recording_s` those of making the filesystem, recording and enumerating. Memory is in MiB,
    after each batch of the first way: of the bench's process, and of the board what is not available.
    """

    filesystem: str
    program: str
    writes: int = 0
    different: int = 0
    states: int = 0
    first_s: float = 0.0
    alone_s: float = 0.0
    recording_s: float = 0.0
    bench_mib: list[float] = field(default_factory=list[float])
    board_mib: list[float] = field(default_factory=list[float])
    equal: int = 0
    differences: list[str] = field(default_factory=list[str])


@dataclass
class AloneWork(CrashWork):
    """Crash states that are checked as ever, and then each alone."""

    outcome: Outcome = field(default_factory=lambda: Outcome("", ""))
    states: int = field(default_factory=lambda: int(_settings()["states"]))
    first: bool = field(default_factory=lambda: bool(_settings()["first"]))

    def _measure(self, measurer: Measurer, kind: Filesystem) -> WorkFacts:
        self.outcome = Outcome(self.entry.filesystem, self.workload.command.name)
        self.outcome.recording_s = -time.monotonic()
        evidence = super()._measure(measurer, kind)
        with Path(_settings()["file"]).open("a") as file:
            file.write(json.dumps(asdict(self.outcome)) + "\n")
        return evidence

    def _read(self, measurer: Measurer) -> Recording:
        """The recorded run with some of its states, evenly spread."""
        recording = super()._read(measurer)
        count, states = self.states, recording.coverage.different
        some = [states[i * len(states) // count] for i in range(count)] if count < len(states) else list(states)
        self.outcome.recording_s += time.monotonic()
        self.outcome.writes, self.outcome.different = recording.log.writes, len(states)
        self.outcome.states = len(some)
        return replace(recording, coverage=replace(recording.coverage, different=tuple(some)))

    def _check_all(self, measurer: Measurer, recording: Recording) -> None:
        begun_s = time.monotonic()
        super()._check_all(measurer, recording)
        self.outcome.first_s = time.monotonic() - begun_s
        if not self.first:
            self._check_each_alone(measurer, recording)

    def _check(self, measurer: Measurer, log: WriteLog, states: Sequence[State], *, metered: bool = True) -> None:
        super()._check(measurer, log, states, metered=metered)
        meminfo = checked(measurer.shell, "cat", "/proc/meminfo").stdout
        kib = {name: int(number) for name, number in re.findall(r"^(\w+): +(\d+) kB", meminfo, re.MULTILINE)}
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        self.outcome.bench_mib.append(resident / MIB)
        self.outcome.board_mib.append((kib["MemTotal"] - kib["MemAvailable"]) * KIB / MIB)

    def _check_each_alone(self, measurer: Measurer, recording: Recording) -> None:
        states, alone, begun_s = list(recording.coverage.different), dict[str, Checked](), time.monotonic()
        random.Random(self.plan_seed).shuffle(states)
        self._durable = 0
        self._order(measurer, ("rewind", *self._advance(recording.log, recording.log.made)))
        made = checked(measurer.shell, "sha256sum", _BASE, timeout_s=_ORDER_S).stdout
        for i in range(0, len(states), _BATCH):
            alone |= self._order(measurer, [_alone(recording.log, each) for each in states[i : i + _BATCH]])
            print(f"{len(alone)} of {len(states)} states checked alone", flush=True)
        if checked(measurer.shell, "sha256sum", _BASE, timeout_s=_ORDER_S).stdout != made:
            self.outcome.differences.append("a check has changed the base")
        self.outcome.alone_s = time.monotonic() - begun_s
        self._durable = 0  # the next check begins with an empty base
        for state in states:
            was, now = (
                str(replace(each[state.name], mount_s=0, check_s=0, mount_mj=None, check_mj=None))
                for each in (self.results, alone)
            )
            self.outcome.equal += was == now
            if was != now:
                self.outcome.differences.append(f"{state.name}: {was!r}, and alone {now!r}")

    def _order(self, measurer: Measurer, orders: Sequence[str]) -> dict[str, Checked]:
        measurer.shell.put(onboard.ORDERS, "".join(f"{each}\n" for each in orders).encode())
        said = checked(measurer.shell, *onboard.CHECK_ARGV, timeout_s=_ORDER_S).stdout
        return {line["name"]: Checked.read(line) for line in _LINE.finditer(said)}


def _alone(log: WriteLog, state: State) -> str:
    """The order to check a state whose pieces have all that was written since mkfs."""
    pieces = _painted([*log.pieces(range(log.made, log.epochs[state.epoch].begins)), *state.pieces])
    return f"state {state.name} {state.promises} {' '.join(map(str, pieces))}"


def _settings() -> dict[str, str]:
    return json.loads(os.environ[_SETTINGS])


def pytest_configure() -> None:
    """In the bench's process."""
    fsjoule.bench.run.CrashWork = AloneWork


def outcomes(arguments: argparse.Namespace, folder: Path) -> list[Outcome]:
    """Run the bench. Raises CalledProcessError if it fails."""
    programs = PROJECT / "src" / "fsjoule" / "suites" / "definitions"
    (folder / _PROGRAM).write_bytes((programs / _PROGRAM).read_bytes())
    workloads = (_WORKLOAD.format(rounds=each, program=_PROGRAM) for each in arguments.rounds.split(","))
    (folder / "crash-alone.toml").write_text(_SUITE + "".join(workloads))
    file = folder / "outcomes"
    settings = {"states": arguments.states, "first": arguments.first, "file": str(file)}
    words = ("--lg-env", arguments.lg_env, "--suite", str(folder / "crash-alone.toml"), "--fs", arguments.fs)
    argv = (*("pytest", "tests/bench", "-s", "-p", "no:cacheprovider", "-p", "crash_alone"), *words, "--seed", "7")
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, _SETTINGS: json.dumps(settings), "PYTHONPATH": path}
    argv = (sys.executable, "-m", *argv, "--results", str(folder / "results"))
    subprocess.run(argv, cwd=PROJECT, check=True, timeout=_TIMEOUT_S, env=environment)
    return [Outcome(**json.loads(line)) for line in file.read_text().splitlines()]


def table(found: Sequence[Outcome]) -> str:
    """A line a measurement, and one a difference."""
    head = (
        f"{'filesystem':<15} {'program':<9} {'writes':>6} {'states':>6} {'checked':>7} {'equal':>6} {'different':>9} "
        f"{'record s':>8} {'first s':>8} {'per s':>6} {'alone s':>8}  bench MiB    board MiB"
    )
    lines = [head]
    for each in found:
        different = len(each.differences)
        memory = "  ".join(f"{mib[0]:.0f} to {max(mib):.0f}, {mib[-1]:.0f}" for mib in (each.bench_mib, each.board_mib))
        lines.append(
            f"{each.filesystem:<15} {each.program:<9} {each.writes:>6} {each.different:>6} {each.states:>7} "
            f"{each.equal:>6} {different:>9} {each.recording_s:>8.0f} {each.first_s:>8.0f} "
            f"{each.states / each.first_s:>6.2f} {each.alone_s:>8.0f}  {memory}"
        )
    return "\n".join([*lines, *(f"{each.filesystem} {line}" for each in found for line in each.differences)])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fs", default="ext4:nobarrier,vfat,f2fs")
    parser.add_argument("--rounds", default="4", help="of the program, separated by commas")
    parser.add_argument("--states", type=int, default=1000, help="at most, of each measurement")
    parser.add_argument("--first", action="store_true", help="check in the log's order only")
    parser.add_argument("--lg-env", default=str(PROJECT / "env" / "deterministic.yaml"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crash-alone-") as folder:
        found = outcomes(arguments, Path(folder))
    print(table(found))
    return int(any(each.differences for each in found))


if __name__ == "__main__":
    raise SystemExit(main())
