"""A board in real time is sampled by perf, in boots whose figures do not count."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine
from fake_bench import AFTER, COUNTERS, answer, bench_of, entry
from profiles import symbols_of, write_profiled

from fsjoule import lab
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.profiles import PERIOD_NS, samples_between
from fsjoule.bench.run import BoardBench
from fsjoule.errors import ConfigError, LabError
from fsjoule.model import SAMPLED, Profile
from fsjoule.ports import CommandResult
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import choose, with_profiles
from fsjoule.store.profiles import PROFILE_FILE, decode_profile, encode_profile, symbols_file
from fsjoule.testing import FakeMeter, FakeShell, FakeStore
from fsjoule.verdicts.explanation.changes import Windows, explain
from fsjoule.verdicts.explanation.functions import Function, executed

ENVIRONMENTS = Path(__file__).parents[2] / "env"
# As perf writes it (6.1 of Debian). The second and the last are outside of the window.
TEXT = """\
      0 K        12.000000001:  c0101234 ([kernel.kallsyms])
    345 U        11.999999999:         b6f01234 (/usr/bin/fio)
    345 U        12.500000000:         b6f01234 (/usr/bin/fio)
    345 U        12.600000000:         b6e00000 (/usr/lib/arm-linux-gnueabihf/libc.so.6)
    345 U        12.700000000:         ffff0fe0 ([vectors])
    345 K        13.400000000:  bf000010 ([btrfs])
    345 K        13.500000000:  bf000010 ([btrfs])
this line is none of perf's
    345 K        14.000000000:  c0101234 ([kernel.kallsyms])
"""
KALLSYMS = "c0100000 T stext\nc0101000 t btrfs_like\n"


def rows(profile: Profile) -> dict[tuple[int, str], int]:
    names = {0: "kernel", **profile.programs}
    table = zip(profile.addresses.tolist(), profile.pages.tolist(), profile.executed.tolist(), strict=True)
    return {(address, names[page]): count for address, page, count in table}


def test_samples_between_the_marks_are_a_profile() -> None:
    profile = samples_between(TEXT, 12_000_000_000, 14_000_000_000)
    assert profile is not None
    assert rows(profile) == {
        (0xC0101234, "kernel"): 1,
        (0xBF000010, "kernel"): 2,
        (0xB6F01234, "fio"): 1,
        (0xB6E00000, "libc.so.6"): 1,
        (0xFFFF0FE0, "other code of programs"): 1,
    }
    assert (profile.window_ns, profile.busy_ns, profile.sampled) == (2_000_000_000, 6 * PERIOD_NS, True)
    again = decode_profile(encode_profile(profile), Path("profile.parquet"))
    assert (again.sampled, again.programs, rows(again)) == (True, profile.programs, rows(profile))


def test_a_perf_of_32_bits_has_seconds_in_its_nanoseconds() -> None:
    """As Debian 13's perf 6.12 wrote it on the emulated i.MX6UL, between 7.40 and 7.90 s."""
    text = """\
    294 K         7.4695715840:          c07cf294 ([kernel.kallsyms])
    294 K         7.4696215840:          bf079c8c ([ext4])
    294 K         7.5194694896:          c0571384 ([kernel.kallsyms])
"""
    profile = samples_between(text, 7_400_000_000, 7_900_000_000)
    assert profile is not None
    assert rows(profile) == {(0xC07CF294, "kernel"): 1, (0xBF079C8C, "kernel"): 1, (0xC0571384, "kernel"): 1}
    later = samples_between(text, 7_400_900_000, 7_899_000_000)
    assert later is not None
    assert [int(each) for each in later.addresses] == [0xBF079C8C]


def test_no_sample_is_no_profile() -> None:
    assert samples_between(TEXT, 20_000_000_000, 30_000_000_000) is None


def sampled_profile(counts: dict[int, int]) -> Profile:
    at = sorted(counts)
    return Profile(
        np.array(at, np.uint64),
        np.zeros(len(at), np.uint64),
        np.array([counts[each] for each in at], np.uint64),
        window_ns=10**9,
        busy_ns=sum(counts.values()) * 1000,
        instruction_ns=1000,
        sampled=True,
    )


def test_a_processor_with_nothing_to_do_is_not_busy() -> None:
    symbols = symbols_of({0x100: "vfs_read", 0x200: "cpu_v7_do_idle", 0x300: "cpuidle_enter_state", 0x400: "rpm_idle"})
    found = executed(sampled_profile({0x104: 3, 0x204: 50, 0x304: 40, 0x404: 2}), symbols)
    assert found.times == {Function("vfs_read"): 3000, Function("rpm_idle"): 2000}
    assert (found.busy_ns, found.period_ns) == (5000, 1000)


def test_a_difference_has_the_error_of_so_many_samples() -> None:
    symbols = symbols_of({0x100: "vfs_read", 0x200: "vfs_write"})

    def side(*counts: int) -> Windows:
        return Windows("x", [(executed(sampled_profile({0x104: count}), symbols), 2.0) for count in counts])

    told = explain("ext4", "MiB", side(100), side(150, 250), simulated=False)
    (change,) = told.functions
    # 100 samples of 1 us in 2 MiB, and 400 in two boots of 2 MiB.
    assert (change.baseline_ns, change.candidate_ns) == (50_000, 100_000)
    assert change.error_ns == pytest.approx(((10 / 2) ** 2 + (20 / 4) ** 2) ** 0.5 * 1000)
    assert told.baseline.error_ns == pytest.approx(5000)
    assert told.modules[0].error_ns == pytest.approx(change.error_ns)
    assert told.period_ns == 1000


def board(samples: str | None = TEXT, *, check: int = 0) -> FakeShell:
    """A board whose perf finds these samples, or fails."""
    shell = FakeShell(answer)

    def answered(argv: tuple[str, ...]) -> CommandResult:
        script = argv[-1]
        if "command -v perf" in script:
            return CommandResult(argv, check, "")
        if "perf script" in script:
            shell.files[f"{onboard.DIRECTORY}/samples"] = (samples or "").encode()
            return CommandResult(argv, 0 if samples is not None else 1, "no such file")
        if "kallsyms" in script:
            shell.files["/tmp/fsjoule-symbols"] = KALLSYMS.encode()
            return CommandResult(argv, 0, "2\n")
        return answer(argv)

    shell.answer = answered
    return shell


def bench_on(shell: FakeShell) -> tuple[BoardBench, FakeStore]:
    bench = replace(bench_of(shell=shell, meter=FakeMeter()), sampled=True)
    shell.files |= {onboard.BEFORE: b"12.00 9.0\n" + COUNTERS, onboard.AFTER: b"14.00 9.5\n" + AFTER}
    assert isinstance(bench.store, FakeStore)
    return bench, bench.store


def test_a_sampled_boot_keeps_profiles_and_symbols_and_its_figures_do_not_count() -> None:
    shell = board()
    bench, store = bench_on(shell)
    bench.begin()
    write = entry(bench, "write-16k")
    measurement = bench.measure(write)
    assert measurement.invalid_reasons == (SAMPLED,)
    assert measurement.energy is None
    assert measurement.throughput_mib_per_s
    profile = decode_profile(store.attachments[write.number][PROFILE_FILE], Path("x"))
    assert sum(rows(profile).values()) == 6
    (ran,) = [argv for argv in shell.asked if argv[:2] == ("perf", "record")]
    assert "fio" in ran[ran.index("--") + 1]
    assert b"cat /proc/uptime" in shell.files[f"{onboard.DIRECTORY}/install"]
    bench.finish(expected=1)
    assert set(store.kept) == {symbols_file(1)}


def test_a_board_is_asked_for_no_uptime_where_it_is_not_sampled() -> None:
    shell = board()
    bench = bench_of(shell=shell, meter=FakeMeter())
    bench.begin()
    bench.measure(entry(bench, "write-16k"))
    assert b"uptime >" not in shell.files[f"{onboard.DIRECTORY}/install"]
    assert not any(argv[0] == "perf" for argv in shell.asked)


@pytest.mark.parametrize(("code", "reason"), [(3, "has no perf"), (4, "CONFIG_PERF_EVENTS")])
def test_a_board_that_cannot_be_sampled_is_refused(code: int, reason: str) -> None:
    bench, _ = bench_on(board(check=code))
    bench.begin()
    with pytest.raises(ConfigError) as caught:
        bench.measure(entry(bench, "write-16k"))
    assert reason in str(caught.value)


def test_samples_that_cannot_be_read_are_a_fault_of_the_lab() -> None:
    bench, _ = bench_on(board(None))
    bench.begin()
    with pytest.raises(LabError, match="cannot read its samples: no such file"):
        bench.measure(entry(bench, "write-16k"))


def test_a_window_without_samples_is_said() -> None:
    bench, _ = bench_on(board("\n"))
    bench.begin()
    assert any("took no sample" in note for note in bench.measure(entry(bench, "write-16k")).notes)


@pytest.mark.parametrize(("environment", "exact"), [("deterministic", True), ("virtual", False)])
def test_the_board_decides_how_it_is_profiled(environment: str, exact: bool, tmp_path: Path) -> None:
    file = lab.read_environment(ENVIRONMENTS / f"{environment}.yaml")
    choice = choose(
        BenchOptions(suite="quick", fs="ext4", repeat=1, results=tmp_path, seed=1), file, pair=("6.1", "6.12")
    )
    found = with_profiles(choice, file)
    assert (found.profiled, found.sampled) == (exact, not exact)


def test_sampled_profiles_are_explained_with_their_error(fsjoule: CommandLine, tmp_path: Path) -> None:
    run = write_profiled(tmp_path / "results", {"6.1": 100, "6.12": 400}, sampled=True)
    text = fsjoule("explain", "6.1", "6.12", "--within", run, "--fs", "btrfs", "-k", "randread")
    assert text.code == 0, text.err
    assert "by sampling)" in text.out
    assert "±" in text.out
    assert "perf sampled each processor every" in " ".join(text.out.split())
    told = json.loads(fsjoule("explain", "6.1", "6.12", "--within", run, "--fs", "btrfs", "--json").out)
    one = told["explanations"][0]
    assert one["sampling_period_ns"] == PERIOD_NS
    assert one["functions"][0]["error_ns"] > 0
