"""Entries that only read take the files that the entry before them has read: laying them out takes as long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from fake_bench import answer, bench_of, entry

from fsjoule.bench.run import BoardBench
from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Planned
from fsjoule.ports import CommandResult
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.testing import FakeMeter, FakeShell


def bench_with(answered: Callable[[tuple[str, ...]], CommandResult] = answer) -> tuple[BoardBench, FakeShell]:
    shell = FakeShell(answered)
    return bench_of(shell=shell, meter=FakeMeter()), shell


def reading(bench: BoardBench, number: int, operation: IoPattern = IoPattern.READ, **changed: int) -> Planned:
    plain = replace(entry(bench, "read-16k"), number=number)
    assert isinstance(plain.workload, FioWorkload)
    return replace(plain, workload=replace(plain.workload, operation=operation, **changed))


def laid_out(shell: FakeShell) -> list[str]:
    """How each reading measurement got its files."""
    found = [argv[0] for argv in shell.asked if "--create_only=1" in argv]
    touched = [argv[2] for argv in shell.asked if argv[:2] == ("sh", "-c") and argv[2].startswith("touch ")]
    return [*found, *touched]


def test_files_are_laid_out_once_and_touched_for_the_next_reader() -> None:
    bench, shell = bench_with()
    bench.measure(reading(bench, 101))
    made = len(shell.asked)
    bench.measure(reading(bench, 102, IoPattern.RANDREAD, block_size_bytes=64 * KIB))
    assert laid_out(shell) == ["fio", "touch /tmp/fsjoule/scratch/*"]
    assert not [argv for argv in shell.asked[made:] if argv[0] in ("mkfs.ext4", "mount", "umount")]
    drop = ("sh", "-c", "echo 3 > /proc/sys/vm/drop_caches")
    assert drop in shell.asked[made:], "the second one does not find the files in memory"


def with_plan(bench: BoardBench, *entries: Planned) -> None:
    bench.run = replace(bench.run, plan=replace(bench.plan, entries=entries))


def sizes_laid_out(shell: FakeShell) -> list[int]:
    return [
        int(each.removeprefix("--size="))
        for argv in shell.asked
        if "--create_only=1" in argv
        for each in argv
        if "--size=" in each
    ]


def test_readers_whose_sizes_differ_by_their_blocks_alone_share_the_largest_ones_files() -> None:
    bench, shell = bench_with()
    entries = [
        reading(bench, 101 + number, size_bytes=size)
        for number, size in enumerate((1000 * KIB, 1040 * KIB, 1024 * KIB, 1280 * KIB, 1180 * KIB))
    ]
    with_plan(bench, *entries)
    for each in entries:
        bench.measure(each)
    assert laid_out(shell) == ["fio"] * 2 + ["touch /tmp/fsjoule/scratch/*"] * 3
    assert sizes_laid_out(shell) == [1040 * KIB, 1280 * KIB]
    read = [argv for argv in shell.asked if argv[0] == "fio" and "--create_only=1" not in argv]
    assert all(f"--size={each.workload.size_bytes}" in argv for each, argv in zip(entries, read, strict=True))


def test_files_of_a_job_that_also_writes_are_its_own() -> None:
    bench, shell = bench_with()
    mixed = reading(bench, 101, IoPattern.READWRITE, size_bytes=1000 * KIB)
    with_plan(
        bench,
        mixed,
        reading(bench, 102, size_bytes=1040 * KIB),
        reading(bench, 103, IoPattern.WRITE, size_bytes=1040 * KIB),
    )
    bench.measure(mixed)
    assert sizes_laid_out(shell) == [1000 * KIB]


BETWEEN: Final[dict[str, Callable[[BoardBench], object]]] = {
    "written": lambda bench: bench.measure(entry(bench, "write-16k")),
    "made": lambda bench: bench.measure(entry(bench, "mkfs")),
    "booted": lambda bench: bench.booted(entry(bench, "read-16k")),
    "provisioned": lambda bench: bench.provisioned(entry(bench, "read-16k")),
    "other files": lambda bench: bench.measure(reading(bench, 110, size_bytes=8 * MIB)),
    "other filesystem": lambda bench: bench.measure(replace(reading(bench, 110), filesystem="btrfs")),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_whatever_else_is_done_on_the_board_lays_files_out_anew(between: str) -> None:
    bench, shell = bench_with()
    bench.measure(reading(bench, 101))
    BETWEEN[between](bench)
    before = len(laid_out(shell))
    bench.measure(reading(bench, 102))
    assert laid_out(shell) == ["fio"] * (before + 1)


def test_files_that_could_not_be_read_are_not_read_again() -> None:
    def failing(argv: tuple[str, ...]) -> CommandResult:
        failed = argv[0] == "fio" and "--create_only=1" not in argv
        return CommandResult(argv, 1, "Input/output error") if failed else answer(argv)

    bench, shell = bench_with(failing)
    assert not bench.measure(reading(bench, 101)).valid
    bench.measure(reading(bench, 102))
    assert laid_out(shell) == ["fio", "fio"]


def test_a_measurement_whose_files_cannot_be_laid_out_is_invalid() -> None:
    def failing(argv: tuple[str, ...]) -> CommandResult:
        return CommandResult(argv, 1, "No space left on device") if "--create_only=1" in argv else answer(argv)

    bench, _ = bench_with(failing)
    [reason] = bench.measure(reading(bench, 101)).invalid_reasons
    assert "--create_only=1" in reason
    assert "No space left on device" in reason


def test_readers_of_equal_published_sizes_follow_each_other_whatever_their_blocks() -> None:
    planned = plan_entries(suite("ext4-zfs-2023/test1"), Planning(("ext4",), ("6.1",), repeat=1, seed=3)).entries
    reads = [each.number for each in planned if each.workload.slug.startswith("randread")]
    assert len(reads) == 6
    assert reads == list(range(reads[0], reads[0] + 6))


def test_readers_of_the_same_files_follow_each_other_in_an_order_of_chance() -> None:
    def orders(seed: int) -> list[list[str]]:
        planning = Planning(("ext4", "btrfs"), ("6.1",), repeat=4, seed=seed)
        planned = plan_entries(suite("energy-emmc-2025"), planning).entries
        return [
            [f"{each.filesystem} {each.workload.slug}" for each in planned if each.repetition == repetition]
            for repetition in range(1, 5)
        ]

    for order in orders(5):
        reads = [number for number, name in enumerate(order) if "ext4 r" in name and "read" in name]
        assert len(reads) == 6
        assert reads == list(range(reads[0], reads[0] + 6))
    assert len({tuple(order) for order in orders(5)}) == 4
    firsts = {order.index("ext4 read-16k") for seed in range(30) for order in orders(seed)}
    assert len(firsts) > 12, "their place among the others is of chance, too"
    assert orders(5) == orders(5)
