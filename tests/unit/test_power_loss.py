"""An iteration of power loss over fakes of the ports: its seed, its cut, and what is made of what is left."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_bench import AFTER, COUNTERS, FACTS, IMAGE, PROFILE, answer

from fsjoule.bench.damage import PowerLoss
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.onboard.survival import INSPECTOR, WRITER
from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError, ConfigError
from fsjoule.model import (
    FileFate,
    Measurement,
    Plan,
    Planned,
    PowerLossWorkload,
    Run,
    RunStatus,
)
from fsjoule.ports import CommandResult
from fsjoule.suites import BoardRates, Planning, estimate, plan_entries, suite
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell, FakeStore

PLAN_SEED = 5
CONSOLE = "".join(f"synced {n} 5000 {str(n) * 64}\n" for n in (1, 2, 3))
Answer = Callable[[tuple[str, ...]], CommandResult]


def entries(filesystems: tuple[str, ...] = ("ext4",), repeat: int = 1) -> tuple[Planned, ...]:
    wanted = Planning(filesystems, ("6.1",), repeat=repeat, seed=PLAN_SEED)
    return plan_entries(suite("elc2015/power-loss"), wanted).entries


def iteration(entry: Planned, seed: int = PLAN_SEED) -> PowerLoss:
    assert isinstance(entry.workload, PowerLossWorkload)
    return PowerLoss.of(entry, entry.workload, seed)


def bench_of(answered: Answer, *, said: str = CONSOLE, faults: list[BoardError] | None = None) -> BoardBench:
    files = {
        onboard.BEFORE: COUNTERS,
        onboard.AFTER: AFTER,
        onboard.DURATION: b"1.00 1.02 1.02 1\n0m0.0s 0m0.0s\n0m0.01s 0m0.01s\n",
    }
    plan = Plan("elc2015/power-loss", ("ext4",), ("6.1",), 1, PLAN_SEED, {}, entries())
    run = Run("id", "1970-01-01T00:00:00Z", RunStatus.RUNNING, simulated=True, plan=plan)
    board = FakeBoard(FakeShell(answered, files), FACTS, IMAGE, faults or [], said=lambda: said)
    return BoardBench(run, PROFILE, board, FakeMeter(), FakeStore(), FakeClock(), lambda _: None)


def answering(**outputs: str | int) -> Answer:
    """A board on which programs, by their name, print something or end with that exit code."""

    def answered(argv: tuple[str, ...]) -> CommandResult:
        name = next((name for name in outputs if name in shlex.join(argv).replace("-", "_")), None)
        if name is None:
            return answer(argv)
        told = outputs[name]
        return CommandResult(argv, told if isinstance(told, int) else 0, told if isinstance(told, str) else "")

    return answered


def measured(bench: BoardBench, number: int = 0) -> Measurement:
    return bench.measure(bench.plan.entries[number])


INTACT = "1 intact\n2 intact\n3 intact\n"


def test_an_aged_filesystem_is_told_after_the_cut() -> None:
    bench = bench_of(answering(readlink="/sys/block/mmcblk1/mmcblk1p3 131072\n", inspector=INTACT))
    aged = replace(bench.plan.entries[0], filesystem="ext4@1y-logger")
    found = bench.measure(aged)
    assert found.outcome is not None
    assert found.aged is not None
    assert found.notes[0].startswith("aged 1y-logger")


def test_an_iteration_depends_on_the_plans_seed_and_its_entry_only() -> None:
    planned = entries(("ext4", "btrfs"), repeat=3)
    seeds = [iteration(entry).seed for entry in planned]
    assert len(set(seeds)) == len(planned) == 12
    assert [iteration(entry).seed for entry in entries(("ext4", "btrfs"), repeat=3)] == seeds
    moved = replace(planned[0], number=99)
    assert iteration(moved).seed == seeds[0]
    assert iteration(planned[0], PLAN_SEED + 1).seed != seeds[0]


def test_moments_of_the_cut_are_spread_over_the_whole_range() -> None:
    planned = entries(repeat=50)
    moments = [iteration(entry).cut_after_s for entry in planned]
    assert all(0.5 <= moment <= 4.0 for moment in moments)
    assert min(moments) < 1.0
    assert max(moments) > 3.5


def test_what_was_promised_and_is_there_is_no_failure() -> None:
    bench = bench_of(answering(inspect_files=INTACT))
    result = measured(bench)
    assert result.valid
    assert result.outcome is not None
    assert not result.outcome.failed
    assert result.outcome.files == {FileFate.INTACT: 3}
    loss = iteration(bench.plan.entries[0])
    assert (result.outcome.seed, result.outcome.cut_s) == (loss.seed, loss.cut_after_s)
    assert isinstance(bench.board, FakeBoard)
    assert bench.board.cuts == [(loss.cut_after_s, loss.seed)]
    assert bench.board.shell.started[0][0] == WRITER


def test_the_next_iteration_begins_on_the_boot_after_the_cut() -> None:
    bench = bench_of(answering(inspect_files=INTACT))
    numbers = [measured(bench, number).boot for number in (0, 1)]
    assert isinstance(bench.board, FakeBoard)
    assert (numbers, bench.board.boots) == ([2, 3], 3)
    # Scripts reach each boot in one upload, which takes seconds on a console.
    installed = [argv for argv in bench.board.shell.asked if argv == ("sh", "-e", f"{onboard.DIRECTORY}/install")]
    assert len(installed) == 3


@pytest.mark.parametrize(
    ("inspected", "fate"),
    [("missing", FileFate.MISSING), ("differs 4980", FileFate.SILENT), ("differs 0", FileFate.ZEROED)],
)
def test_a_file_that_was_promised_and_is_not_intact_is_a_failure(inspected: str, fate: FileFate) -> None:
    result = measured(bench_of(answering(inspect_files=f"1 intact\n2 {inspected}\n3 intact\n")))
    assert result.valid
    assert result.outcome is not None
    assert result.outcome.failed
    assert result.outcome.files[fate] == 1
    assert result.outcome.damaged == (f"2: {fate.value}",)


def test_a_filesystem_that_cannot_be_mounted_refuses_its_files() -> None:
    def answered(argv: tuple[str, ...]) -> CommandResult:
        # Made and mounted before the cut, it does not mount after it.
        after_cut = isinstance(bench.board, FakeBoard) and bool(bench.board.cuts)
        if after_cut and "mount" in argv and "-t" in argv:
            return CommandResult(argv, 32, "mount: wrong fs type\nsee dmesg\n")
        return answer(argv)

    bench = bench_of(answered)
    result = measured(bench)
    assert result.outcome is not None
    assert (result.outcome.mounts, result.outcome.repaired) == (False, False)
    assert result.outcome.files == {FileFate.REFUSED: 3}
    assert "the filesystem could not be mounted: mount: wrong fs type" in result.notes


def test_what_only_a_repair_makes_readable_is_looked_at_after_it() -> None:
    repaired = False

    def answered(argv: tuple[str, ...]) -> CommandResult:
        nonlocal repaired
        after_cut = isinstance(bench.board, FakeBoard) and bool(bench.board.cuts)
        if argv[:3] == ("fsck.ext4", "-f", "-y"):
            repaired = True
        if after_cut and not repaired and "mount" in argv and "-t" in argv:
            return CommandResult(argv, 32, "mount: wrong fs type\n")
        if argv[0] == INSPECTOR:
            return CommandResult(argv, 0, "1 intact\n2 missing\n3 intact\n")
        return answer(argv)

    bench = bench_of(answered)
    outcome = measured(bench).outcome
    assert outcome is not None
    assert (outcome.mounts, outcome.repaired, outcome.failed) == (False, True, True)
    assert outcome.files == {FileFate.INTACT: 2, FileFate.MISSING: 1}


def test_a_writer_that_ended_by_itself_makes_the_iteration_invalid() -> None:
    said = f"{CONSOLE}stopped at 4: dd: can't open '4': No space left on device\n"
    result = measured(bench_of(answering(inspect_files=INTACT), said=said))
    assert not result.valid
    assert "No space left" in result.invalid_reasons[0]


def test_a_board_that_does_not_boot_once_after_the_cut_costs_no_iteration() -> None:
    bench = bench_of(answering(inspect_files=INTACT))
    assert isinstance(bench.board, FakeBoard)
    board, boot = bench.board, bench.board.boot

    def failing_once(seed: int = 1) -> FakeShell:
        if board.boots == 1:
            board.faults.append(BoardError("it did not boot", transient=True))
        return boot(seed)

    board.boot = failing_once
    result = measured(bench)
    assert result.valid
    assert board.boots == 4
    assert len(board.cuts) == 2
    assert len(set(board.cuts)) == 1


def test_every_iteration_is_a_boot_besides_the_first() -> None:
    taken = estimate(entries(("ext4", "btrfs"), repeat=3), BoardRates())
    assert (taken.measurements, taken.boots) == (12, 13)


def test_in_guest_time_there_is_no_random_moment() -> None:
    wanted = Planning(("ext4",), ("6.1",), repeat=1, seed=PLAN_SEED, guest_time=True)
    with pytest.raises(ConfigError, match=r"nothing is left of elc2015/power-loss.*no random moment"):
        plan_entries(suite("elc2015/power-loss"), wanted)
    arranged = plan_entries(suite("elc2015"), wanted)
    assert not any(isinstance(entry.workload, PowerLossWorkload) for entry in arranged.entries)
    assert any("no random moment" in each for each in arranged.left_out)
