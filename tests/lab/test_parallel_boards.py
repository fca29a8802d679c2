"""Boards in guest time that boot at once: what they measure together is what one of them measures."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bench_runs import command, only_run, run_bench, told
from lab_leftovers import assert_nothing_left, processes
from labgrid_process import forget_coordinator

from fsjoule.errors import ConfigError
from fsjoule.host import interrupts
from fsjoule.host.messages import lines_to
from fsjoule.lab import read_environment
from fsjoule.model import RunStatus
from fsjoule.model.metrics import Metric
from fsjoule.runs.bisect.boots import BoardBoots
from fsjoule.runs.bisect.pool import Pool, PoolAssignment
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.pairs import BootPair, PairedRun, measure_pairs
from fsjoule.runs.parallel.boards import started_boards
from fsjoule.runs.parallel.messages import Assignment
from fsjoule.runs.request import RunRequest, choose
from fsjoule.store.reader import LoadedRun, load_run

PROJECT = Path(__file__).parents[2]
ENVIRONMENT = read_environment(PROJECT / "env" / "deterministic.yaml")


def choice(results: Path, boards: int, kernels: str | tuple[str, str] = ("6.1", "6.1")) -> RunRequest:
    return choose(
        BenchOptions(
            suite="energy-emmc-2025",
            fs="ext4",
            kernel=kernels if isinstance(kernels, str) else None,
            repeat=1,
            provision="scratch",
            results=results,
            seed=3,
            workload="randread-16k",
            size_factor=1 / 128,  # files of 4 MiB
            boards=boards,
        ),
        ENVIRONMENT,
        pair=None if isinstance(kernels, str) else kernels,
    )


def measured(results: Path, boards: int, said: list[str], kill: str | None = None) -> PairedRun:
    """A pair of boots. The board's process that begins with the line `kill` is killed then."""

    def heard(text: str) -> None:
        said.append(text)
        if kill is not None and text.startswith(kill):
            os.kill(workers()[int(kill.split()[1][0]) - 1], signal.SIGKILL)

    def never(_pair: BootPair) -> str | None:
        return None

    try:
        with lines_to(heard):
            return measure_pairs(choice(results, boards), ENVIRONMENT, enough=never, command=("fsjoule", "gate"))
    finally:
        forget_coordinator()


def workers() -> list[int]:
    """The processes of boards, in their order."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return sorted(int(each) for each in children if b"parallel.worker" in Path(f"/proc/{each}/cmdline").read_bytes())


def test_a_board_whose_process_is_killed_costs_no_figure(state: Path, tmp_path: Path) -> None:
    alone = load_run(measured(tmp_path / "one", 1, []).folder)
    said: list[str] = []
    together = load_run(measured(tmp_path / "two", 2, said, kill="board 1: card with").folder)
    assert any(line.startswith("board 1 is left out: board 1: its process was killed by SIGKILL") for line in said), (
        said
    )
    assert together.run.status is RunStatus.COMPLETE
    [fault] = together.run.faults
    assert fault.what.startswith("board 1: its process was killed by SIGKILL")
    # Either of the two boots, of one entry each: whichever board is ready first gets the first one.
    assert fault.number in {entry.number for entry in together.run.plan.entries}
    assert fault.started_utc <= fault.ended_utc
    assert [told(each) for each in together.measurements] == [told(each) for each in alone.measurements]
    for each in alone.measurements:
        ours, theirs = alone.trace(each.number), together.trace(each.number)
        assert ours is not None
        assert theirs is not None
        assert ours.power_w.tolist() == theirs.power_w.tolist()
    assert together.run.boards == alone.run.boards
    assert together.run.meter == alone.run.meter
    assert_nothing_left(state, state / "devices")


@pytest.mark.usefixtures("state")
def test_a_run_none_of_whose_boards_comes_up_ends_with_the_first_cause(tmp_path: Path, said: list[str]) -> None:
    wanted = choice(tmp_path / "none", 2)
    file = tmp_path / "file"
    file.touch()
    assignment = Assignment(replace(wanted, results=file / "results"), ENVIRONMENT, (), ("fsjoule", "gate"))
    with pytest.raises(ConfigError, match="--results"), started_boards(assignment):
        pytest.fail("a board came up")
    assert not [line for line in said if "is left out" in line]  # the error tells it
    assert not workers()


@pytest.mark.slow
def test_a_bench_on_two_boards_is_that_of_one(state: Path, tmp_path: Path) -> None:
    wanted = ("--suite", "energy-emmc-2025", "--fs", "ext4", "--size-factor", str(1 / 128), "--seed", "3")
    chosen = ("--provision", "scratch", "--repeat", "2", "-k", "randread-16k")
    runs: list[LoadedRun] = []
    for boards in ("1", "2"):
        done = run_bench(
            tmp_path / boards, *wanted, *chosen, "--boards", boards, environment=PROJECT / "env" / "deterministic.yaml"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        runs.append(only_run(tmp_path / boards))
    alone, together = runs
    assert together.run.status is RunStatus.COMPLETE
    assert [told(each) for each in together.measurements] == [told(each) for each in alone.measurements]
    assert len({each.boot for each in together.measurements}) == len(together.measurements) == 2
    assert_nothing_left(state, state / "devices")


def bench_with_a_death(results: Path, state: Path, victim: str, *options: str) -> None:
    """A bench in which the process with this in its command line is killed once two measurements are told."""
    with subprocess.Popen(
        command(results, *options, environment=PROJECT / "env" / "deterministic.yaml"),
        cwd=PROJECT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as bench:
        assert bench.stdout is not None
        try:
            for line in bench.stdout:
                if line.startswith("[  2/"):
                    for number, _, words in (each.partition(" ") for each in processes(state)):
                        if victim in words:
                            os.kill(int(number), signal.SIGKILL)
        finally:
            bench.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "boards"), [("qemu-system", "1"), ("-m pytest tests/bench", "1"), ("worker", "2")])
def test_a_death_in_the_midst_of_a_boot_costs_no_figure(state: Path, tmp_path: Path, victim: str, boards: str) -> None:
    wanted = ("--suite", "quick", "--fs", "ext4", "--seed", "7", "--repeat", "1", "-k", "mount or mkfs")
    environment = PROJECT / "env" / "deterministic.yaml"
    undisturbed = run_bench(tmp_path / "alone", *wanted, "--boards", "1", environment=environment)
    assert undisturbed.returncode == 0, undisturbed.stdout
    bench_with_a_death(tmp_path / "dies", state, victim, *wanted, "--boards", boards)
    assert_nothing_left(state, state / "devices")
    died = only_run(tmp_path / "dies")
    assert len(died.measurements) >= 2, "what was told is stored"
    if died.run.status is not RunStatus.COMPLETE:
        go_on = ("-k", "mount or mkfs", "--resume", str(died.path))
        resumed = run_bench(tmp_path / "dies", *go_on, environment=environment)
        assert resumed.returncode == 0, resumed.stdout
        died = only_run(tmp_path / "dies")
    assert {each.boot for each in died.measurements} in ({1}, {2})
    expected = [{**told(each), "boot": 0} for each in only_run(tmp_path / "alone").measurements]
    assert [{**told(each), "boot": 0} for each in died.measurements] == expected


@pytest.mark.slow
def test_boots_of_a_bisection_are_those_of_one_board(state: Path, tmp_path: Path) -> None:
    wishes = [(Path("6.1"), seed) for seed in (7, 8)]
    metrics, select = (Metric.THROUGHPUT, Metric.ENERGY, Metric.CPU), "randread"
    alone = choice(tmp_path / "one", 1, "6.1")
    with BoardBoots(alone, ENVIRONMENT, metrics, select, tmp_path / "cards", ()) as one:
        expected = [one.measure(*wish) for wish in wishes]
    forget_coordinator()
    assigned = PoolAssignment(
        replace(alone, results=tmp_path / "two"), ENVIRONMENT, metrics, select, tmp_path / "ahead", ()
    )
    with interrupts.handled(), Pool(assigned, 2, tmp_path / "two") as pool:
        pool.expect(lambda _: wishes)
        found = [pool.measure(*wish) for wish in wishes]
    assert [each.figures for each in found] == [each.figures for each in expected]
    assert all(None not in each.figures.values() for each in found)
    runs = [[load_run(each.folder).measurements for each in boots] for boots in (expected, found)]
    assert [[told(m) for m in run] for run in runs[0]] == [[told(m) for m in run] for run in runs[1]]
    assert {each.folder.parent for each in found} == {tmp_path / "two"}
    assert_nothing_left(state, state / "devices")
