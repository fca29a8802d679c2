"""What the commonest commands cost: processor time, time by the clock and peak memory of each, from start to end.

They run on a made-up run of two kernels and a made-up index. With `--beside` another checkout's `fsjoule` takes turns
with this one, so that both see the same load. Python's compiled files are in place, as after the first start of an
installed program; with `--as-is` the environment decides.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

# The runs are those of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from compared_runs import write_kernels
from synthetic_runs import SyntheticLab

from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs

_KERNELS: Final = {"6.1": 1.0, "6.12": 0.9}
_COMPLETING: Final = {"_FSJOULE_COMPLETE": "complete_bash", "COMP_WORDS": "fsjoule meter cal", "COMP_CWORD": "2"}

# Starts a program without its output, and prints what it cost.
_LAUNCHER: Final = """
import json, os, sys, time
begin = time.perf_counter()
nowhere = os.open(os.devnull, os.O_RDWR)
to = [(os.POSIX_SPAWN_DUP2, nowhere, standard) for standard in (0, 1, 2)]
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=to)
_, status, used = os.wait4(process, 0)
wall = time.perf_counter() - begin
print(json.dumps([used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)]))
"""


class Command(NamedTuple):
    """A command by the name that the table has for it."""

    name: str
    words: tuple[str, ...]
    variables: dict[str, str]


class Cost(NamedTuple):
    """One start: `peak_mib` is the largest resident memory."""

    cpu_s: float
    wall_s: float
    peak_mib: float
    exit_code: int


def main(
    *,
    beside: Annotated[list[Path] | None, typer.Option(help="Another fsjoule to measure; may be repeated.")] = None,
    repeat: Annotated[int, typer.Option(help="Starts of each command; the median is shown.", min=1)] = 5,
    runs: Annotated[int, typer.Option(help="Runs of 15 measurements in the index.", min=1)] = 200,
    as_is: Annotated[bool, typer.Option("--as-is", help="Leave Python's own variables as they are.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure the commonest commands.

    Example: python benchmarks/start_up.py --beside ../before/.venv/bin/fsjoule
    """
    programs = [Path(sys.executable).with_name("fsjoule"), *(each.absolute() for each in beside or ())]
    with tempfile.TemporaryDirectory(prefix="start-up-") as temporary:
        place = Path(temporary)
        commands = _commands(place, runs)
        found = {command.name: _measured(command, programs, place, 1 + repeat, as_is=as_is) for command in commands}
    if as_json:
        document = {name: [cost._asdict() for cost in costs] for name, costs in found.items()}
        print(json.dumps({"programs": [str(each) for each in programs], "commands": document}, indent=2))
        return
    for number, program in enumerate(programs, start=1):
        print(f"{number}: {program}")
    print(f"{'':14}" + "".join(f"  {number}: CPU s  clock s  peak MiB  exit" for number in range(1, len(programs) + 1)))
    for name, costs in found.items():
        print(f"{name:14}" + "".join(_cells(cost) for cost in costs))


def _cells(cost: Cost) -> str:
    return f"  {cost.cpu_s:8.2f}  {cost.wall_s:7.2f}  {cost.peak_mib:8.0f}  {cost.exit_code:4}"


def _commands(place: Path, runs: int) -> list[Command]:
    run = str(write_kernels(place / "results", speeds=_KERNELS, boots=12))
    index = str(place / "index.sqlite")
    for _ in SyntheticLab(boards=2, seed=1).write(place / "synthetic", 0, runs):
        pass
    with open_index(index, create=True) as opened:
        import_runs(opened, [place / "synthetic"])
    plain = [
        ("--help", "--help"),
        ("version", "version"),
        ("gate --help", "gate", "--help"),
        ("meter --help", "meter", "--help"),
        ("show", "show", run),
        ("compare", "compare", "6.1", "6.12", "--within", run),
        ("gate", "gate", "--baseline", "6.1", "--candidate", "6.12", "--within", run),
        ("trend", "trend", "--index", index),
        ("index stats", "index", "stats", "--index", index),
        ("suites list", "suites", "list"),
        ("image list", "image", "list"),
    ]
    return [Command("completion", (), _COMPLETING), *(Command(name, tuple(words), {}) for name, *words in plain)]


def _measured(command: Command, programs: list[Path], place: Path, starts: int, *, as_is: bool) -> list[Cost]:
    """The median of each program's starts but the first, which compiles; programs take turns."""
    costs = [
        [_start(command, program, place, number, as_is=as_is) for number, program in enumerate(programs)]
        for _ in range(starts)
    ][1:]
    return [
        Cost(
            statistics.median(cost.cpu_s for cost in each),
            statistics.median(cost.wall_s for cost in each),
            max(cost.peak_mib for cost in each),
            each[-1].exit_code,
        )
        for each in zip(*costs, strict=True)
    ]


def _start(command: Command, program: Path, place: Path, number: int, *, as_is: bool) -> Cost:
    environment = {**os.environ, **command.variables}
    if not as_is:
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(place / f"compiled-{number}")
    # A process counts the memory of the one that it was forked from as its own: so a small one comes between.
    launched = [sys.executable, "-S", "-c", _LAUNCHER, str(program), *command.words]
    told = subprocess.run(launched, cwd=place, env=environment, check=True, stdout=subprocess.PIPE)  # noqa: S603
    return Cost(*json.loads(told.stdout))


if __name__ == "__main__":
    typer.run(main)
