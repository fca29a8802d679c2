"""Pairs of boots over fakes of the ports: their order, an early end, and what a fault of the lab costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fake_bench import AFTER, COUNTERS, FACTS, FIO_JSON, IMAGE, PROFILE, answer
from results_factory import make_measurement

from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError, LabError, PlaceLostError
from fsjoule.model import HeldFacts, KernelFacts, KernelOrigin, Measurement, Plan, Provision, Run, RunStatus
from fsjoule.model.metrics import Metric
from fsjoule.ports import CommandResult
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.pairs import BootPair, _left_out, run_pairs
from fsjoule.runs.request import choose
from fsjoule.statistics.figures import Turn, interleaved
from fsjoule.suites import SCRATCH_ROOT, Planning, plan_entries, repetition_seed, suite
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell, FakeStore

SEED = 3
SIDES = ("old", "new")


@dataclass
class FaultyBoard(FakeBoard):
    """Boots, but not those kernels that are named, and not more often than it may."""

    dead: tuple[str, ...] = ()
    faulty_boots: tuple[int, ...] = ()
    log: list[str] = field(default_factory=list[str])

    def boot(self, seed: int = 1) -> FakeShell:
        self.seeds.append(seed)
        kernel, _ = self.prepared[-1]
        self.boots += 1
        self.log.append(kernel)
        if kernel in self.dead or self.boots in self.faulty_boots:
            raise BoardError(f"{kernel} does not boot", transient=kernel not in self.dead)
        self.powered = True
        return self.shell


def bench_of(
    board: FakeBoard, *, pairs: int = 4, filesystems: tuple[str, ...] = ("ext4",), guest_time: bool = False
) -> BoardBench:
    board.shell.files.update(
        {
            onboard.RESULT: FIO_JSON,
            onboard.BEFORE: COUNTERS,
            onboard.AFTER: AFTER,
            onboard.DURATION: b"1.00 1.02 1.02 1\n0m0.0s 0m0.0s\n0m0.01s 0m0.01s\n",
        }
    )
    order = [tuple(SIDES[side is Turn.CANDIDATE] for side in pair) for pair in interleaved(pairs, seed=SEED)]
    entries = plan_entries(suite("quick"), Planning(filesystems, SIDES, pairs, SEED, kernel_order=order)).entries
    plan = Plan("quick", filesystems, SIDES, pairs, SEED, {}, entries)
    facts = tuple(KernelFacts(label, label, KernelOrigin.DEBIAN, "6.1", label) for label in SIDES)
    run = Run("id", "1970-01-01T00:00:00Z", RunStatus.RUNNING, simulated=True, plan=plan, kernels=facts)
    profile = replace(PROFILE, guest_time=guest_time)
    return BoardBench(run, profile, board, FakeMeter(), FakeStore(), FakeClock(), lambda _: None)


def board_with(**changed: object) -> FaultyBoard:
    return FaultyBoard(FakeShell(answer), FACTS, IMAGE, **changed)  # pyright: ignore[reportArgumentType]


def never(_pair: BootPair) -> str | None:
    return None


def test_boots_come_in_the_order_of_the_statistics() -> None:
    board = board_with()
    assert run_pairs(bench_of(board), never) == (4, "the budget of 4 pairs was used up")
    expected = [SIDES[side is Turn.CANDIDATE] for pair in interleaved(4, seed=SEED) for side in pair]
    assert board.log == expected
    assert sorted(board.log[:4]) == ["new", "new", "old", "old"]


def test_both_boots_of_a_pair_measure_in_one_order_and_the_next_pair_in_another() -> None:
    entries = bench_of(board_with()).plan.entries
    orders = [[e.slug for e in entries if (e.repetition, e.kernel) == (r, k)] for r in range(1, 5) for k in SIDES]
    assert all(orders[i] == orders[i + 1] for i in range(0, 8, 2))
    assert len({tuple(order) for order in orders}) > 1


def test_both_boots_of_a_pair_share_a_seed_that_no_other_pair_has() -> None:
    shell = FakeShell(answer)
    board = FaultyBoard(shell, FACTS, IMAGE)
    run_pairs(bench_of(board), never)
    assert board.seeds[::2] == board.seeds[1::2]
    assert len(set(board.seeds)) == 4
    seeds = [word for argv in shell.asked for word in argv if word.startswith("--randseed=")]
    by_boot = [set(seeds[i : i + 4]) for i in range(0, len(seeds), 4)]
    assert by_boot == [{f"--randseed={repetition_seed(SEED, 1 + boot // 2)}"} for boot in range(8)]
    assert len({repetition_seed(SEED, r) for r in range(1, 100)}) == 99


@pytest.mark.parametrize("guest_time", [True, False])
def test_the_board_is_told_the_same_in_both_boots_of_a_pair(guest_time: bool) -> None:
    """In guest time, where another number in a mark would cost other instructions."""
    shell = FakeShell(answer)
    run_pairs(bench_of(FaultyBoard(shell, FACTS, IMAGE), pairs=1, guest_time=guest_time), never)
    begins = [at for at, argv in enumerate(shell.asked) if "if=/dev/random" in argv]
    assert len(begins) == 2
    assert (shell.asked[: begins[1]] == shell.asked[begins[1] :]) is guest_time


@pytest.mark.parametrize("name", ["power-on-mkfs 1f", "state-suspend 60s 1f"])
def test_a_segment_or_state_that_neither_boot_has_is_not_tested(name: str) -> None:
    def measured(*, segment: bool, has: bool) -> list[Measurement]:
        entry = next(each for each in bench_of(board_with()).plan.entries if each.workload.slug == "mkfs")
        made, _ = make_measurement(entry)
        series = replace(made.series, workload=name if segment else "mkfs")
        return [replace(made, series=series) if has else replace(made, series=series, duration_s=None, energy=None)]

    absent = measured(segment=True, has=False)
    [left_out] = _left_out({Turn.BASELINE: absent, Turn.CANDIDATE: absent})
    assert left_out.series.workload == name
    assert not _left_out({Turn.BASELINE: absent, Turn.CANDIDATE: measured(segment=True, has=True)})
    held = [replace(each, held=HeldFacts()) for each in absent]
    assert not _left_out({Turn.BASELINE: held, Turn.CANDIDATE: held}), "its power was lost"
    lacking = measured(segment=False, has=False)
    assert not _left_out({Turn.BASELINE: lacking, Turn.CANDIDATE: lacking})


def test_each_pair_has_both_figures_of_every_test() -> None:
    pairs: list[BootPair] = []
    run_pairs(bench_of(board_with()), pairs.append)
    assert [pair.number for pair in pairs] == [1, 2, 3, 4]
    tests = {(series.label, metric) for series, metric in pairs[0].figures}
    assert ("ext4 randwrite-16k 32768KiB", Metric.WRITE_AMPLIFICATION) in tests
    assert ("ext4 randread-16k 32768KiB", Metric.WRITE_AMPLIFICATION) not in tests
    assert ("ext4 mkfs", Metric.DURATION) in tests
    for (series, metric), (baseline, candidate) in pairs[0].figures.items():
        # The meter is silent, and nothing is profiled: what they would have told is missing, and is not left out. The
        # meter alone times a boot.
        missing = metric in _METERED or metric.row.seldom or series.series.workload == "boot"
        assert (baseline is None) == missing, (series, metric)
        assert baseline == candidate


_METERED = (Metric.ENERGY, Metric.NET_ENERGY, Metric.OPERATION_ENERGY, Metric.OPERATION_NET_ENERGY, Metric.POWER)


def test_it_ends_when_enough_is_seen_and_the_run_says_so() -> None:
    bench = bench_of(board_with())
    pairs, ended = run_pairs(bench, lambda pair: "decided" if pair.number == 2 else None)
    assert (pairs, ended) == (2, "decided after 2 pairs")
    run = bench.finish(expected=len(bench.plan.entries), ended_early=ended)
    assert run.status is RunStatus.COMPLETE
    assert run.ended_early == "decided after 2 pairs"
    assert len(bench.results) == 2 * 2 * 8


def test_an_invalid_measurement_is_a_missing_figure() -> None:
    def failing_once(asked: list[tuple[str, ...]]) -> FakeShell:
        def with_error(argv: tuple[str, ...]) -> CommandResult:
            asked.append(argv)
            first = sum(each[0] == "fio" and "--output" in each[1] for each in asked) == 1
            return CommandResult(argv, 1, "No space left") if argv[0] == "fio" and first else answer(argv)

        return FakeShell(with_error)

    pairs: list[BootPair] = []
    run_pairs(bench_of(FaultyBoard(failing_once([]), FACTS, IMAGE), pairs=2), pairs.append)
    missing = [test for test, figures in pairs[0].figures.items() if test[1] is Metric.CPU and None in figures]
    assert len(missing) == 1
    assert sum(figure is None for figure in pairs[0].figures[missing[0]]) == 1
    assert not pairs[0].faults


def test_a_boot_that_fails_costs_its_figures() -> None:
    pairs: list[BootPair] = []
    board = board_with(faulty_boots=(3, 4))  # and its second try
    run_pairs(bench_of(board), pairs.append)
    faulty = board.log[2]
    assert [len(pair.faults) for pair in pairs] == [0, 1, 0, 0]
    assert f"{faulty} does not boot" in pairs[1].faults[0]
    position = SIDES.index(faulty)
    assert all(figures[position] is None for figures in pairs[1].figures.values())
    assert any(figures[1 - position] is not None for figures in pairs[1].figures.values())


@pytest.mark.parametrize("dead", SIDES)
def test_a_side_that_fails_twice_in_a_row_ends_it(dead: str) -> None:
    board = board_with(dead=(dead,))
    side = "baseline" if dead == "old" else "candidate"
    with pytest.raises(LabError, match=f"the {side}, kernel {dead}, failed 2 times in a row: {dead} does not boot"):
        run_pairs(bench_of(board), never)
    assert board.log.count(dead) == 1  # what does not boot for good is not tried again
    assert not board.powered


def test_a_root_that_never_boots_ends_it_though_scratch_boots_in_between() -> None:
    class NoRoot(FaultyBoard):
        def boot(self, seed: int = 1) -> FakeShell:
            self.dead = ("new",) if self.prepared[-1] == ("new", "btrfs") else ()
            return super().boot(seed)

    board = NoRoot(FakeShell(answer), FACTS, IMAGE)
    bench = bench_of(board, filesystems=("btrfs",))
    mixed = replace(
        suite("quick"),
        workloads=(),
        parts=tuple(replace(suite("quick"), name=each, provision=each) for each in Provision),
    )
    wanted = Planning(("btrfs",), SIDES, 4, SEED, root_filesystems=("btrfs",))
    bench.run = replace(bench.run, plan=replace(bench.plan, entries=plan_entries(mixed, wanted).entries))
    with pytest.raises(LabError, match="the candidate, kernel new, failed 2 times in a row"):
        run_pairs(bench, never)
    assert board.prepared[board.prepared.index(("new", "btrfs")) :].count(("new", SCRATCH_ROOT)) == 1


@pytest.mark.parametrize("kernels", [("6.1", "6.12"), ("6.1", "6.1")])
def test_two_kernels_that_are_given_apart_are_sides(kernels: tuple[str, str], tmp_path: Path) -> None:
    choice = choose(
        BenchOptions(suite="quick", fs="ext4", repeat=5, provision="scratch", results=tmp_path, seed=1), pair=kernels
    )
    assert choice.paired
    assert choice.kernels == kernels


def test_a_fixed_order_of_kernels_is_kept() -> None:
    filesystems = ("ext4", "btrfs")
    wanted = Planning(
        filesystems,
        ("a", "b"),
        repeat=2,
        seed=1,
        provision=Provision.ROOT,
        root_filesystems=filesystems,
        kernel_order=(("a", "b"), ("b", "a")),
    )
    entries = plan_entries(suite("quick"), wanted).entries
    boots = [(e.kernel, e.filesystem) for e in entries if e.workload.operation.value == "boot"]
    # Both kernels on the one filesystem, then both on the other.
    for first in range(0, 8, 2):
        assert boots[first][1] == boots[first + 1][1]
    assert [kernel for kernel, _ in boots] == ["a", "b", "a", "b", "b", "a", "b", "a"]


def test_a_place_that_is_lost_ends_all_pairs_at_once() -> None:
    board = FaultyBoard(FakeShell(answer), FACTS, IMAGE)
    bench = bench_of(board)
    board.lost = PlaceLostError("virtual", "ada has it")
    with pytest.raises(PlaceLostError, match="ada has it"):
        run_pairs(bench, lambda _pair: None)
    assert board.boots == 0
