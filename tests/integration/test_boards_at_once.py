"""One run over the processes of several boards: what is measured, in which order, the time left, what a fault costs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from crash_shell import crash_shell
from fake_bench import FACTS, FILES, IMAGE, PROFILE, answer
from pool_runs import KERNELS, choice_of, run_of

from fsjoule.bench.crash.shared import OtherLogError
from fsjoule.bench.run import BoardBench
from fsjoule.errors import ConfigError, LabError
from fsjoule.host import interrupts
from fsjoule.lab import read_environment
from fsjoule.model import CrashWorkload, Measurement, Plan, Planned, Provision, Run, RunStatus
from fsjoule.model.workload import OwnCommand
from fsjoule.runs.parallel.bench import PoolBench
from fsjoule.runs.parallel.boards import BoardsPace, started_boards
from fsjoule.runs.parallel.messages import Assignment
from fsjoule.runs.parallel.processes import _Process
from fsjoule.runs.plan import check_apart
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell, FakeStore

PROJECT = Path(__file__).parents[2]
ENVIRONMENT = read_environment(PROJECT / "env" / "deterministic.yaml")


@dataclass
class Scene:
    """A run on two boards, and what it told."""

    bench: PoolBench
    store: FakeStore
    left: list[str] = field(default_factory=list[str])

    def all(self) -> list[Measurement]:
        self.bench.begin()
        return [self.bench.measure(entry) for entry in self.bench.entries]


@contextmanager
def two_boards(
    run: Run,
    entries: Sequence[Planned] | None = None,
    kept: Sequence[Measurement] = (),
    results: Path = Path("nowhere"),
    boards: int = 2,
) -> Generator[Scene]:
    choice = choice_of(ENVIRONMENT, results, boards)
    store, left = FakeStore(), list[str]()
    with ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        assignment = Assignment(choice, ENVIRONMENT, (), ("pytest",))
        opened = closing.enter_context(started_boards(assignment, worker="boot_worker"))
        pace = BoardsPace(opened, may_end_early=False)
        wanted = run.plan.entries if entries is None else entries

        def measured(_measurement: Measurement) -> None:
            left.append(pace.text)
            (results / "hold").unlink(missing_ok=True)

        bench = PoolBench(run, opened, store, FakeClock(), measured, wanted, kept)
        yield Scene(bench, store, left)


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "tests" / "helpers"))
    monkeypatch.delenv("LG_COORDINATOR", raising=False)


def by_one_board(run: Run, shell: FakeShell | None = None) -> list[Measurement]:
    store = FakeStore()
    board = FakeBoard(shell or FakeShell(answer, dict(FILES)), FACTS, IMAGE)
    bench = BoardBench(run, PROFILE, board, FakeMeter(), store, FakeClock(), lambda _: None)
    bench.begin()
    for entry in run.plan.entries:
        bench.measure(entry)
    return store.measurements


def number_of(measurement: Measurement) -> int:
    return measurement.number


def told(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    own = [asdict(each) for each in measurements]
    return [{name: value for name, value in each.items() if name != "started_utc"} for each in own]


def test_two_boards_tell_what_one_does_in_its_order_and_numbers() -> None:
    run = run_of(3)
    with two_boards(run) as scene:
        found = scene.all()
        assert scene.bench.finish().status is RunStatus.COMPLETE
    assert told(found) == told(by_one_board(run))
    assert told(sorted(scene.store.measurements, key=number_of)) == told(found)
    assert [each.boot for each in found] == sorted(each.boot for each in found)
    assert max(each.boot for each in found) == 6


def test_the_time_left_is_that_of_boots_to_come_and_ends(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    with two_boards(run_of(3), results=tmp_path) as scene:
        assert scene.bench.boards.left_s is None
        scene.all()
        assert scene.bench.boards.left_s == 0.0
    assert scene.left[0] == "about 1 min left"
    assert scene.left[-1] == ""


def test_only_what_is_chosen_is_booted_for() -> None:
    run = run_of(3)
    chosen = [entry for entry in run.plan.entries if entry.repetition == 2]
    with two_boards(run, chosen) as scene:
        found = scene.all()
        ended = scene.bench.finish(expected=len(chosen))
    assert [each.number for each in found] == [entry.number for entry in chosen]
    assert {each.boot for each in found} == {1, 2}
    assert ended.status is RunStatus.COMPLETE


def test_boards_wait_for_repetitions_that_are_not_released() -> None:
    run, heard = run_of(3), list[int]()
    with two_boards(run) as scene:
        scene.bench.release(1)
        scene.bench.on_stored = lambda _board, measurement: heard.append(measurement.repetition)
        scene.bench.begin()
        for done, until in ((0, 1), (1, 3)):
            scene.bench.release(until)
            for entry in run.plan.entries:
                if done < entry.repetition <= until:
                    scene.bench.measure(entry)
            assert scene.bench.boards.left_s == 0.0
            assert max(heard) == until
    assert told(sorted(scene.store.measurements, key=number_of)) == told(by_one_board(run))


def test_a_resumed_run_keeps_what_it_has_and_counts_on() -> None:
    run = run_of(2)
    kept = by_one_board(run)[:5]
    rest = run.plan.entries[5:]
    with two_boards(run, rest, kept) as scene:
        scene.bench.begin()
        found = [scene.bench.measure(entry) for entry in run.plan.entries]
        assert scene.bench.finish().status is RunStatus.COMPLETE
    assert found[:5] == kept
    assert sorted(map(number_of, scene.store.measurements)) == [entry.number for entry in rest], "each once"
    assert min(each.boot for each in found[5:]) == max(each.boot for each in kept) + 1


def test_a_boot_that_was_cut_is_made_again_whole_in_a_resumed_run() -> None:
    run = run_of(2)
    kept = by_one_board(run)[:5]
    with two_boards(run, run.plan.entries, kept) as scene:
        scene.store.measurements = list(kept)
        found = scene.all()
        assert scene.bench.finish().status is RunStatus.COMPLETE
    assert [each.number for each in scene.store.measurements if each in kept] == []
    assert [each.number for each in found] == [entry.number for entry in run.plan.entries]
    assert sorted(map(number_of, scene.store.measurements)) == list(map(number_of, found)), "nothing twice"
    assert {each.boot for each in found} == {2, 3, 4, 5}, "after the one that was cut"


def test_what_was_told_is_kept_when_a_run_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "endless").touch()
    run, heard = run_of(2), set[int]()

    def hear(_board: int, measurement: Measurement) -> None:
        heard.add(measurement.number)
        if len(heard) == 6:  # three of each boot
            raise KeyboardInterrupt

    with two_boards(run, results=tmp_path) as scene:
        scene.bench.on_stored = hear
        with pytest.raises(KeyboardInterrupt):
            scene.all()
        done = scene.bench.finish("interrupted")
    assert (done.status, done.faults) == (RunStatus.ABORTED, ())
    kept = scene.store.measurements
    assert {each.number for each in kept} == heard
    assert {each.boot for each in kept} == {1, 2}
    rest = [entry for entry in run.plan.entries if entry.number not in heard]
    with two_boards(run, rest, kept) as scene:
        assert [each.number for each in scene.all()] == [entry.number for entry in rest]
        assert scene.bench.finish().status is RunStatus.COMPLETE


def test_dead_boards_cost_no_boot_a_try_and_get_no_more_work(tmp_path: Path) -> None:
    """The first boot fails on both of them: on others than dead ones it would be given up."""
    (tmp_path / "dead").write_text("deterministic deterministic-2")
    run = run_of(2)
    with two_boards(run, results=tmp_path, boards=3) as scene:
        found = scene.all()
        left = scene.bench.boards.processes.left
        ended = scene.bench.finish()
    assert left == [3]
    assert ended.status is RunStatus.COMPLETE
    assert told(found) == told(by_one_board(run))
    assert sorted(each.what for each in ended.faults) == [
        "the lab's outlet of deterministic has died",
        "the lab's outlet of deterministic-2 has died",
    ]
    tried = [line.split() for line in (tmp_path / "tried").read_text().splitlines()]
    assert sorted(name for name, _ in tried) == ["deterministic", "deterministic-2"]


def test_a_boards_process_that_was_stopped_is_not_awaited() -> None:
    with subprocess.Popen(["sleep", "60"]) as stopped:
        try:
            stopped.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
            now_s = time.monotonic()
            none = cast("Any", None)
            silent = [_Process(stopped, none, none, heard, Path()) for heard in (now_s, now_s - 20)]
            assert [each.silence() for each in silent] == ["", "was stopped (SIGSTOP) and does nothing"]
        finally:
            stopped.kill()


def test_a_run_whose_boards_are_all_dead_ends_with_what_has_failed(tmp_path: Path) -> None:
    (tmp_path / "dead").write_text("deterministic deterministic-2")
    run = run_of(2)
    with two_boards(run, results=tmp_path) as scene:
        scene.bench.begin()
        for entry in (run.plan.entries[0], run.plan.entries[-1]):
            with pytest.raises(LabError, match="the lab's outlet of deterministic") as caught:
                scene.bench.measure(entry)
        assert caught.value.what.startswith("no board is left: ")
        assert caught.value.ends_run
        ended = scene.bench.finish()
    assert ended.status is RunStatus.ABORTED
    assert len(ended.faults) == 2


def test_a_boot_that_fails_on_both_boards_costs_its_figures_and_the_run_goes_on() -> None:
    run = run_of(1, ("6.1", "dead"))
    with two_boards(run) as scene:
        scene.bench.begin()
        for entry in run.plan.entries:
            if entry.kernel == "6.1":
                scene.bench.measure(entry)
                continue
            with pytest.raises(LabError, match="dead does not boot"):
                scene.bench.measure(entry)
            assert scene.bench.failures_in_a_row == 0, "another board goes on"
        ended = scene.bench.finish()
    assert len(scene.store.measurements) == len(run.plan.entries) // 2
    assert ended.status is RunStatus.ABORTED


def crash_run() -> Run:
    workload = CrashWorkload(OwnCommand("files", ("./files.sh",)))
    each = [Planned(n, 1, "6.1", name, workload, "c", Provision.SCRATCH) for n, name in ((1, "ext4"), (2, "vfat"))]
    return replace(run_of(1), plan=Plan("c", ("ext4", "vfat"), ("6.1",), 1, 3, {}, tuple(each)))


@pytest.mark.parametrize("fails", ["", "deterministic", "deterministic-2"])
def test_boards_share_crash_states_and_find_what_one_finds(fails: str, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "fails").write_text(fails)
    run = crash_run()
    with two_boards(run, results=tmp_path) as scene:
        found = scene.all()
        ended = scene.bench.finish()
    alone = by_one_board(run, crash_shell())
    assert [each.crash for each in found] == [each.crash for each in alone]
    assert all(each.crash and each.crash.losses and "without write 4 " in each.crash.cause for each in found)
    assert ended.status is RunStatus.COMPLETE
    assert [each.what for each in ended.faults] == (["the outlet does not answer"] if fails else [])
    assert not scene.store.kept
    for number in (1, 2):
        assert any(f"board {number}: " in line and "states checked" in line for line in said) is not fails.endswith(
            "c" if number == 1 else "-2"
        )


def test_boards_that_recorded_different_writes_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("deterministic-2")
    with two_boards(crash_run(), results=tmp_path) as scene:
        with pytest.raises(OtherLogError, match="nothing of them was put together") as caught:
            scene.all()
        assert caught.value.ends_run
        assert scene.bench.finish(caught.value.what).status is RunStatus.ABORTED
    assert not scene.store.measurements


def test_power_cuts_are_for_one_board() -> None:
    entries = plan_entries(suite("elc2015"), Planning(("ext4",), KERNELS, repeat=1, seed=3)).entries
    with pytest.raises(ConfigError, match="cuts the power and goes on in the boot after the last cut"):
        check_apart(entries)
    check_apart(run_of(1).plan.entries)
