"""What a board has executed: as the probe writes it, as a run keeps it, and the symbols that name it."""

# pyarrow ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_bench import answer, bench_of, entry, runtime_s, traced
from profiles import profile_of, symbols_of, written
from reported_runs import write_run

from fsjoule import lab
from fsjoule.bench.judge import WorkFacts
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.profiles import COUNTS_FILE, attach_counts, counts_in, parse_symbols
from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError, ConfigError, LabError, ResultError, StorageError
from fsjoule.images.programs import page_hashes, program_pages
from fsjoule.model import INSTRUCTIONS, KERNEL_INSTRUCTIONS, USER_INSTRUCTIONS, Profile, Symbols
from fsjoule.model.metrics import Metric, figure_of
from fsjoule.ports import CommandResult
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.parallel.messages import BootTask
from fsjoule.runs.parallel.processes import Link
from fsjoule.runs.parallel.worker import BootStore, make_boot
from fsjoule.runs.request import check_profiled, choose
from fsjoule.store.profiles import (
    PROFILE_FILE,
    PROGRAMS_FILE,
    decode_profile,
    decode_programs,
    decode_symbols,
    encode_profile,
    encode_programs,
    encode_symbols,
    symbols_file,
)
from fsjoule.store.reader import load_run
from fsjoule.testing import FakeMeter, FakeProfiler, FakeShell, FakeStore
from fsjoule.virtual.lab.board import read_profile

PROJECT = Path(__file__).parents[2]
PATH = Path("profile.parquet")
KALLSYMS = """\
c0100000 T _text
c0100000 T stext
c0100040 t btrfs_like\t[libcrc]
bf000000 t $a\t[btrfs]
bf000000 t btrfs_read\t[btrfs]
c0200000 D jiffies
c0100080 W arch_thing
"""


def rows(profile: Profile) -> list[tuple[int, int, int]]:
    columns = (profile.addresses, profile.pages, profile.executed)
    return list(zip(*(map(int, column) for column in columns), strict=True))


def names(symbols: Symbols) -> list[tuple[int, str, str]]:
    return list(zip(map(int, symbols.addresses), symbols.names, symbols.modules, strict=True))


def test_a_window_is_read_as_the_probe_wrote_it() -> None:
    profile = read_profile(written((0xC0100004, 0, 7), (0x8000, 99, 3), (0xFFFF0010, 0, 2), busy_ns=40))
    assert rows(profile) == [(0x8000, 99, 3), (0xC0100004, 0, 7), (0xFFFF0010, 0, 2)]
    assert (profile.window_ns, profile.busy_ns, profile.instruction_ns) == (8000, 40, 4)
    # Two accesses found no memory and were repeated: their instructions are counted twice.
    assert profile.repeated == 2
    assert profile.sum_ns - profile.repeated * profile.instruction_ns == profile.busy_ns
    assert profile.counts == {INSTRUCTIONS: 10}
    # The host interrupted one at a device, which was begun once more.
    interrupted = read_profile(written((0xC0100004, 0, 8), (0xFFFF0010, 0, 2), busy_ns=28, begun_again=1))
    assert interrupted.repeated == 3
    assert interrupted.sum_ns - interrupted.repeated * interrupted.instruction_ns == interrupted.busy_ns
    apart = read_profile(written(busy_ns=40, of_programs=3))
    assert apart.counts == {INSTRUCTIONS: 10, USER_INSTRUCTIONS: 3, KERNEL_INSTRUCTIONS: 7}


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-1], lambda c: c[:40], lambda c: c + b"x", lambda c: b"X" + c[1:]], ids=range(4)
)
def test_a_window_that_is_none_is_refused(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(LabError, match="profile"):
        read_profile(damage(written((1, 2, 3))))


def test_profiles_and_symbols_are_read_as_they_were_stored() -> None:
    profile = replace(profile_of({0x8000: 3, 0xC0100004: 7}, pages={0x8000: 1 << 63}, idle_ns=5), repeated=1)
    again = decode_profile(encode_profile(profile), PATH)
    assert rows(again) == rows(profile)
    assert (again.window_ns, again.busy_ns, again.instruction_ns, again.repeated) == (45, 40, 4, 1)
    symbols = symbols_of({0xBF000000: "btrfs:btrfs_read", 0xC0100000: "stext"})
    assert names(decode_symbols(encode_symbols(symbols), PATH)) == names(symbols)


def rewritten(content: bytes, change: Callable[[pa.Table], pa.Table]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(content))), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: table.drop(["page"]), "lacks a column"),
        (lambda table: table.set_column(0, "address", pa.array(["x"] * len(table))), "is of type string"),
        (lambda table: table.replace_schema_metadata({}), "without the metadata"),
        (lambda table: table.set_column(2, "executed", pa.nulls(len(table), pa.uint64())), "lacks values"),
        (lambda table: table.set_column(2, "executed", pa.array([1 << 60] * len(table), pa.uint64())), "cannot be"),
        (
            lambda table: table.replace_schema_metadata({b"fsjoule.profile": b'{"schema": "fsjoule.profile/1"}'}),
            "does not follow",
        ),
    ],
    ids=["column", "type", "metadata", "nulls", "counts", "header"],
)
def test_a_damaged_profile_is_refused(change: Callable[[pa.Table], pa.Table], reason: str) -> None:
    good = encode_profile(profile_of({1: 1, 5: 2}))
    with pytest.raises(ResultError, match=reason):
        decode_profile(rewritten(good, change), PATH)


def test_half_a_profile_is_refused() -> None:
    good = encode_profile(profile_of({1: 1}))
    with pytest.raises(ResultError, match="cannot be read"):
        decode_profile(good[: len(good) // 2], PATH)


def test_symbols_that_do_not_ascend_are_refused_and_their_names_are_plain() -> None:
    symbols = symbols_of({1: "a", 2: "b\x1b[2J"})
    assert names(decode_symbols(encode_symbols(symbols), PATH))[1] == (2, "b�[2J", "")
    with pytest.raises(ResultError, match="does not ascend"):
        decode_symbols(encode_symbols(Symbols(np.array([2, 1], np.uint64), ["a", "b"], ["", ""])), PATH)


def test_programs_are_known_by_their_pages(tmp_path: Path) -> None:
    binaries = tmp_path / "usr" / "bin"
    binaries.mkdir(parents=True)
    text = b"\x7fELF" + bytes(range(256)) * 32
    (binaries / "fio").write_bytes(text)
    (binaries / "fio-again").write_bytes(text + b"more")
    (binaries / "script").write_bytes(b"#!/bin/sh\n")
    (binaries / "link").symlink_to("fio")
    pages = program_pages(tmp_path)
    assert sorted(pages.values()) == ["fio", "fio", "fio", "fio-again"]
    # As probe/guest_profile.c does it, of a page of zeros and ones.
    expected = 0xCBF29CE484222325
    for word in [0x0101010101010101] * 512:
        expected = ((expected ^ word) * 0x100000001B3) % 2**64
    assert page_hashes(b"\x01" * 4096).tolist() == [expected]
    assert decode_programs(encode_programs(pages), PATH) == pages
    run = load_run(write_run(tmp_path / "results").path)
    assert run.programs() == {}
    (run.path / PROGRAMS_FILE).write_bytes(encode_programs(pages))
    assert run.programs() == pages


def test_functions_are_what_the_kernel_calls_code() -> None:
    files = ["/lib/modules/6.12-armmp/kernel/fs/btrfs/btrfs.ko.xz", "/lib/modules/6.12-armmp/kernel/lib/lib-crc.ko"]
    symbols = parse_symbols(KALLSYMS.splitlines(), files)
    assert symbols.folders == {"btrfs": "fs/btrfs"}
    assert decode_symbols(encode_symbols(symbols), PATH).folders == symbols.folders
    assert names(symbols) == [
        (0xBF000000, "btrfs_read", "btrfs"),
        (0xC0100000, "stext", ""),
        (0xC0100040, "btrfs_like", "libcrc"),
        (0xC0100080, "arch_thing", ""),
        (0xFFFF0000, "vectors", ""),
    ]


@pytest.mark.parametrize("lines", [[], ["00000000 T stext", "00000000 t other"], ["c0000000 D data"]])
def test_a_kernel_that_hides_its_symbols_has_none(lines: list[str]) -> None:
    with pytest.raises(LabError, match="where its symbols are"):
        parse_symbols(lines)


def board_with(kallsyms: str | None) -> FakeShell:
    shell = FakeShell(answer)

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if argv[0] != "sh" or "kallsyms" not in argv[2]:
            return answer(argv)
        if kallsyms is None:
            return CommandResult(argv, 1, "sed: /proc/kallsyms: No such file or directory")
        shell.files["/tmp/fsjoule-symbols"] = kallsyms.encode()
        return CommandResult(argv, 0, f"{kallsyms.count(chr(10))}\n")

    shell.answer = answered
    return shell


def profiled(shell: FakeShell, profile: Profile | None) -> tuple[BoardBench, FakeProfiler, FakeStore]:
    profiler = FakeProfiler(profile)
    bench = replace(bench_of(shell=shell, meter=FakeMeter()), profiler=profiler)
    assert isinstance(bench.store, FakeStore)
    return bench, profiler, bench.store


def test_a_measurement_keeps_its_profile_and_the_run_the_symbols_of_each_boot() -> None:
    bench, profiler, store = profiled(board_with(KALLSYMS), profile_of({0xC0100004: 7}))
    bench.begin()
    write = entry(bench, "write-16k")
    bench = replace(
        bench, meter=FakeMeter(traced(f"S{write.number}", f"E{write.number}", runtime_s=runtime_s() + 0.01))
    )
    measured = bench.measure(write)
    assert (measured.valid, measured.counts) == (True, {INSTRUCTIONS: 7})
    assert figure_of(measured, Metric.INSTRUCTIONS) == 7 / 4  # fio's report is of 4 MiB
    assert (profiler.counted, profiler.windows) == (1, [str(write.number)])
    assert rows(decode_profile(store.attachments[write.number][PROFILE_FILE], PATH)) == [(0xC0100004, 0, 7)]
    # Asking for them would change what is measured after it.
    assert store.kept == {}
    bench.measure(entry(bench, "boot"))
    assert profiler.windows[1:] == ["boot"]
    assert set(store.kept) == {symbols_file(1)}
    bench.finish(expected=2)
    assert set(store.kept) == {symbols_file(1), symbols_file(2)}
    assert "stext" in decode_symbols(store.kept[symbols_file(2)], PATH).names


def test_one_of_several_boards_hands_over_the_symbols_of_its_boot() -> None:
    bench, _, _ = profiled(board_with(KALLSYMS), profile_of({0xC0100004: 7}))
    store = BootStore(bench.run, lambda _measured: None)
    bench = replace(bench, store=store)
    here, there = Pipe()
    with here, there:
        done = make_boot(bench, BootTask(1, bench.run, (entry(bench, "boot"),)), store, Link(here))
    assert done.fault is None
    assert [name for name, _ in done.kept] == [symbols_file(1)]


def test_without_a_profiler_a_board_is_asked_for_nothing_more() -> None:
    shell = board_with(KALLSYMS)
    bench = bench_of(shell=shell, meter=FakeMeter())
    bench.begin()
    bench.measure(entry(bench, "write-16k"))
    bench.finish(expected=1)
    assert not any("kallsyms" in " ".join(argv) for argv in shell.asked)
    assert isinstance(bench.store, FakeStore)
    assert bench.store.kept == {}
    assert all(PROFILE_FILE not in files for files in bench.store.attachments.values())


def test_a_window_without_a_profile_and_a_kernel_without_symbols_are_said(said: list[str]) -> None:
    bench, _, store = profiled(board_with(None), None)
    bench.begin()
    assert any(note.startswith("no profile: ") for note in bench.measure(entry(bench, "write-16k")).notes)
    assert bench.finish(expected=1).abort_reason is None
    assert store.kept == {}
    assert any("boot 1 have no symbols" in line and "CONFIG_KALLSYMS" in line for line in said)


def test_a_run_that_is_broken_off_does_not_wait_for_symbols() -> None:
    shell = board_with(KALLSYMS)
    bench, _, store = profiled(shell, profile_of({1: 1}))
    bench.begin()
    bench.measure(entry(bench, "write-16k"))
    bench.finish("interrupted")
    assert store.kept == {}
    assert not any("kallsyms" in " ".join(argv) for argv in shell.asked)


def test_a_full_disk_ends_the_run() -> None:
    class Full(FakeStore):
        def keep(self, name: str, content: bytes) -> None:
            raise StorageError(f"{name}, {len(content)} bytes, could not be stored")

    bench, _, _ = profiled(board_with(KALLSYMS), profile_of({1: 1}))
    bench = replace(bench, store=Full())
    bench.begin()
    bench.measure(entry(bench, "write-16k"))
    with pytest.raises(StorageError):
        bench.measure(entry(bench, "boot"))


def test_runs_without_profiles_read_as_ever_and_links_are_not_followed(tmp_path: Path) -> None:
    path = write_run(tmp_path / "results").path
    run = load_run(path)
    number, folder = next(iter(run.folders.items()))
    assert run.profile(number) is None
    assert run.symbols(1) is None
    secret = tmp_path / "elsewhere.parquet"
    secret.write_bytes(encode_profile(profile_of({1: 1})))
    (folder / PROFILE_FILE).symlink_to(secret)
    (path / symbols_file(1)).symlink_to(secret)
    for read in (lambda: run.profile(number), lambda: run.symbols(1)):
        with pytest.raises(ResultError, match="symbolic link"):
            read()
    (folder / PROFILE_FILE).unlink()
    (folder / PROFILE_FILE).write_bytes(secret.read_bytes())
    profile = run.profile(number)
    assert profile is not None
    assert rows(profile) == [(1, 0, 1)]


def test_only_a_32_bit_board_in_guest_time_can_be_profiled() -> None:
    check_profiled(lab.read_environment(PROJECT / "env" / "deterministic.yaml"))
    with pytest.raises(ConfigError, match="is not in guest time"):
        check_profiled(lab.read_environment(PROJECT / "env" / "virtual.yaml"))
    with pytest.raises(
        ConfigError, match="deterministic-rpi3 is arm64: instructions can be counted on 32-bit ARM only"
    ):
        check_profiled(lab.read_environment(PROJECT / "env" / "deterministic-rpi3.yaml"))


def chosen(workload: str) -> tuple[str, ...] | None:
    return choose(
        BenchOptions(
            suite="quick", fs="ext4", kernel="6.1", repeat=1, results=Path("results"), seed=1, workload=workload
        )
    ).workloads


def test_layers_are_named_with_storage_or_stack_not_both() -> None:
    with pytest.raises(ConfigError, match=r"card\+dm-crypt has layers, and --stack names more"):
        choose(BenchOptions(fs="ext4", storage="card,card+dm-crypt", stack="none,dm-crypt"))


def test_a_workload_goes_by_its_slug_or_by_what_it_does() -> None:
    assert chosen("read-16k") == chosen("read") == ("read-16k",)
    assert chosen("mount") == ("mount",)
    with pytest.raises(ConfigError, match=r"unknown workload of suite 'quick'.*'rea'"):
        chosen("rea")


# perf 6.12 of Debian 13 on one processor, and on two kinds of them; a Cortex-A9 does not tell the kernel's apart.
PERF = """\
# started on Mon Nov 30 12:00:00 2026

{k},,instructions:k,900500000,{share},,
{u},,instructions:u,900500000,100.00,,
"""
KINDS = """\
1000,,armv8_cortex_a53/instructions/k,900500000,100.00,,
200,,armv8_cortex_a53/instructions/u,900500000,100.00,,
4000,,armv8_cortex_a72/instructions/k,900500000,100.00,,
800,,armv8_cortex_a72/instructions/u,900500000,100.00,,
"""
COUNTED = {KERNEL_INSTRUCTIONS: 5000, USER_INSTRUCTIONS: 1000, INSTRUCTIONS: 6000}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (PERF.format(k=5000, u=1000, share="100.00"), COUNTED),
        (KINDS, COUNTED),
        ("6000,,instructions,900500000,100.00,,\n", {INSTRUCTIONS: 6000}),
        (PERF.format(k=5000, u=1000, share="49.92"), {}),
        (PERF.format(k="<not counted>", u=1000, share="0.00"), {}),
        (KINDS.replace("4000", "<not counted>"), {}),
        (PERF.format(k=0, u=0, share="100.00"), {}),
        ("", {}),
    ],
)
def test_the_processors_own_count_stands_where_it_is_whole(text: str, counts: dict[str, int]) -> None:
    assert counts_in(text) == counts
    evidence = WorkFacts(trace=None, marks=("S1", "E1"), idle_s=1.0)
    attach_counts(evidence, text, in_guest_time=False)
    assert (evidence.counts, bool(evidence.notes)) == (counts, not counts)
    assert evidence.attachments[COUNTS_FILE] == text.encode()


def counting_board(counts: str, log: str = "") -> tuple[BoardBench, FakeShell]:
    def said(argv: tuple[str, ...]) -> CommandResult:
        return CommandResult(argv, 0, log) if "dmesg" in argv[-1] and "irqs" in argv[-1] else answer(argv)

    shell = FakeShell(said, {onboard.COUNTS: counts.encode()})
    bench = bench_of(shell=shell, meter=FakeMeter())
    return replace(bench, profile=replace(bench.profile, count_instructions=True)), shell


def test_a_board_counts_if_its_environment_says_so() -> None:
    bench, shell = counting_board(PERF.format(k=5000, u=1000, share="100.00"))
    bench.begin()
    write = entry(bench, "write-16k")
    bench = replace(bench, meter=FakeMeter(traced(f"S{write.number}", f"E{write.number}", runtime_s=runtime_s())))
    measured = bench.measure(write)
    assert (measured.valid, measured.counts) == (True, COUNTED)
    assert [argv[:2] for argv in shell.asked if onboard.COUNTED in argv] == [(onboard.COUNTED, "fio")]


@pytest.mark.parametrize(
    ("counts", "log", "words"),
    [
        (PERF.format(k=0, u=0, share="100.00"), "", "its processor counted none"),
        (PERF.format(k=5000, u=1000, share="100.00"), "hw perfevents: no irqs for PMU", "counters overflow unseen"),
    ],
)
def test_a_board_that_cannot_count_ends_the_run(counts: str, log: str, words: str) -> None:
    bench, _ = counting_board(counts, log)
    bench.begin()
    with pytest.raises(BoardError, match=words):
        bench.measure(entry(bench, "write-16k"))
