"""The use case over fakes of the ports: what happens when a part of the lab fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fake_bench import IMAGE, PROFILE, answer, bench_of, entry, runtime_s, traced

from fsjoule.bench.run import Bench
from fsjoule.errors import BoardError, InstrumentError, LabError, PlaceLostError
from fsjoule.meter.protocol.trace_builder import ANOTHER_STREAM
from fsjoule.model import (
    MIB,
    FioWorkload,
    LabStep,
    Measurement,
    MeterCalibration,
    Provision,
    RunStatus,
    Storage,
    TimedKind,
    Trace,
)
from fsjoule.model.labels import series_labels
from fsjoule.ports import CommandResult
from fsjoule.store.steps import STEPS_FILE, decode_steps
from fsjoule.testing import FakeBoard, FakeMeter, FakeShell, FakeStore


def measured(slug: str, answered: Callable[[tuple[str, ...]], CommandResult] = answer) -> Measurement:
    bench = bench_of(shell=FakeShell(answered), meter=FakeMeter())
    wanted = entry(bench, slug)
    bench = replace(
        bench, meter=FakeMeter(traced(f"S{wanted.number}", f"E{wanted.number}", runtime_s=runtime_s() + 0.01))
    )
    return bench.measure(wanted)


def test_a_good_measurement_has_every_figure() -> None:
    result = measured("write-16k")
    assert result.invalid_reasons == ()
    assert result.throughput_mib_per_s == pytest.approx(4 / runtime_s())
    assert result.energy is not None
    assert result.energy_mj_per_mib is not None
    assert result.energy_mj_per_mib.value == pytest.approx(1.25e3 * (runtime_s() + 0.01) / 4)
    assert result.write_amplification == pytest.approx(16384 * 512 / (4 * MIB))
    assert result.cpu_s_per_mib == pytest.approx(0.85 / 4)


def test_a_series_of_the_root_is_told_by_the_options_that_the_card_was_made_with() -> None:
    def answered(argv: tuple[str, ...]) -> CommandResult:
        mounts = argv == ("cat", "/proc/mounts")
        return CommandResult(argv, 0, "/dev/mmcblk1p2 / ext4 rw 0 0\n") if mounts else answer(argv)

    bench = bench_of(shell=FakeShell(answered), meter=FakeMeter())
    assert isinstance(bench.board, FakeBoard)
    bench.board.image_facts = replace(IMAGE, make_options=("-b", "1024"), mount_options=("noatime",))
    write = entry(bench, "write-16k")
    on_scratch, boot = bench.measure(write).series, bench.measure(entry(bench, "boot")).series
    on_root = bench.measure(replace(write, number=99, provision=Provision.ROOT)).series
    assert (on_root.make_options, on_root.mount_options) == (("-b", "1024"), ("noatime",))
    assert (boot.make_options, boot.mount_options) == (("-b", "1024"), ("noatime",))
    assert "nodiscard,lazy_itable_init=1,lazy_journal_init=1" in on_scratch.make_options
    assert set(series_labels([on_scratch, boot, on_root]).values()) == {"ext4"}
    other = replace(on_root, make_options=("-b", "4096"))
    assert series_labels([on_scratch, on_root, other])[other] == "ext4 (-b 4096 noatime)"


def test_a_meter_that_starts_anew_in_the_middle_costs_a_second_try() -> None:
    class Restarted(FakeMeter):
        def disarm(self) -> Trace:
            told, self.trace = super().disarm(), whole
            return told

    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    wanted = entry(bench, "write-16k")
    whole = traced(f"S{wanted.number}", f"E{wanted.number}", runtime_s=runtime_s() + 0.01)
    bench = replace(bench, meter=Restarted(replace(whole, marks=whole.marks[:1], faults=(ANOTHER_STREAM,))))
    result = bench.measure(wanted)
    assert result.valid, result.invalid_reasons
    assert result.energy is not None
    assert [fault.what for fault in bench.run.faults] == ["the meter started anew while it was recording"]


def test_a_silent_meter_costs_the_energy_not_the_measurement() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(None))
    result = bench.measure(entry(bench, "write-16k"))
    assert result.valid
    assert result.throughput_mib_per_s is not None
    assert result.energy is None
    assert result.energy_mj_per_mib is None
    assert any("silent" in note for note in result.notes)


class Flooded(FakeShell):
    """A board whose console mixes other output into the files that are read from it."""

    def get(self, path: str) -> bytes:
        raise BoardError(f"the console damaged {path} on its way from the board, 3 times")


@pytest.mark.parametrize("slug", ["write-16k", "mkfs"])
def test_a_file_that_does_not_arrive_is_the_labs_fault_and_gets_a_second_try(slug: str) -> None:
    bench = bench_of(shell=Flooded(answer), meter=FakeMeter())
    with pytest.raises(BoardError, match="the console damaged"):
        bench.measure(entry(bench, slug))
    assert isinstance(bench.board, FakeBoard)
    assert bench.board.boots == 2
    assert not bench.results


def test_marks_that_did_not_arrive_make_it_invalid() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(traced("S99", "E99")))
    result = bench.measure(entry(bench, "write-16k"))
    assert any("did not both arrive (seen: S99, E99)" in reason for reason in result.invalid_reasons)
    assert result.energy is None


def judged(*marks: str, **changed: Any) -> Measurement:
    """A good job whose trace is not as it should be; `#` stands for the measurement's number."""
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    wanted = entry(bench, "write-16k")
    texts = [mark.replace("#", str(wanted.number)) for mark in marks]
    bench = replace(bench, meter=FakeMeter(traced(*texts, runtime_s=runtime_s() + 0.01, **changed)))
    return bench.measure(wanted)


def test_a_mark_that_came_twice_makes_it_invalid() -> None:
    """One job sends each mark once: what bracketed the work, nobody knows."""
    result = judged("S#", "E#", "E#")
    assert [reason for reason in result.invalid_reasons if "was sent once and arrived 2 times" in reason]


def test_lost_samples_are_a_note() -> None:
    result = judged("S#", "E#", lost=[80, 81])
    assert result.valid, result.invalid_reasons
    assert result.energy is not None
    assert result.energy.gross_mj.value == pytest.approx(1.25e3 * (runtime_s() + 0.01))
    assert any("samples were lost" in note for note in result.notes)
    assert any("samples were lost" in reason for reason in judged("S#", "E#", lost=range(20, 40)).invalid_reasons)


def test_ticks_that_the_meter_missed_cost_the_energy() -> None:
    result = judged("S#", "E#", missed=range(1505, 1512))
    assert any("the meter itself missed 7 of the" in reason for reason in result.invalid_reasons)
    assert result.energy is None
    assert result.window is not None
    elsewhere = judged("S#", "E#", missed=range(1300, 1310))
    assert elsewhere.valid, elsewhere.invalid_reasons
    assert any("the meter missed ticks" in note for note in elsewhere.notes)


def test_a_clipped_window_makes_it_invalid() -> None:
    reasons = judged("S#", "E#", shunt_raw=8000).invalid_reasons
    assert [reason.partition(" samples of ")[2][:15] for reason in reasons] == ["the window reac", "the idle window"]


def test_a_window_that_is_not_fios_makes_it_invalid() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    wanted = entry(bench, "write-16k")
    bench = replace(
        bench, meter=FakeMeter(traced(f"S{wanted.number}", f"E{wanted.number}", runtime_s=runtime_s() + 0.4))
    )
    assert any("differ by" in reason for reason in bench.measure(wanted).invalid_reasons)


def of_four_jobs(excess_s: float) -> Measurement:
    """A job of fio's four, all of them judged by one window that is longer than the longest of them."""
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    single = entry(bench, "write-16k")
    assert isinstance(single.workload, FioWorkload)
    wanted = replace(single, workload=replace(single.workload, jobs=4))
    bench = replace(
        bench, meter=FakeMeter(traced(f"S{wanted.number}", f"E{wanted.number}", runtime_s=runtime_s() + excess_s))
    )
    return bench.measure(wanted)


def test_the_time_of_several_jobs_is_their_window() -> None:
    result = of_four_jobs(0.6)
    assert result.valid, result.invalid_reasons
    assert result.duration_s == pytest.approx(runtime_s() + 0.6)
    assert result.throughput_mib_per_s == pytest.approx(4 / (runtime_s() + 0.6))
    assert result.iops == pytest.approx(256 / (runtime_s() + 0.6))
    assert any("differ by" in reason for reason in of_four_jobs(4 * 0.25 + 0.1).invalid_reasons)


def test_what_the_kernel_reports_makes_it_invalid() -> None:
    def with_error(argv: tuple[str, ...]) -> CommandResult:
        if argv == ("dmesg",):
            return CommandResult(argv, 0, "[ 1.0] blk_update_request: I/O error, dev mmcblk1\n")
        return answer(argv)

    assert any("I/O error" in reason for reason in measured("write-16k", with_error).invalid_reasons)


def test_a_board_with_busyboxs_dmesg_only_is_measured() -> None:
    def by_busybox(argv: tuple[str, ...]) -> CommandResult:
        return CommandResult(argv, 1, "dmesg: invalid option -- 'C'\n") if argv == ("dmesg", "-C") else answer(argv)

    shell = FakeShell(by_busybox)
    bench = bench_of(shell=shell, meter=FakeMeter())
    bench.measure(entry(bench, "write-16k"))
    assert ("dmesg", "-c") in shell.asked


def test_fio_that_fails_makes_it_invalid() -> None:
    def failing(argv: tuple[str, ...]) -> CommandResult:
        return CommandResult(argv, 1, "No space left on device") if argv[0] == "fio" else answer(argv)

    assert any("exit code 1: No space left" in reason for reason in measured("write-16k", failing).invalid_reasons)


def test_a_transient_fault_is_given_a_second_try() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(None), faults=[BoardError("hung", transient=True)])
    assert bench.measure(entry(bench, "write-16k")).slug == "ext4-write-16k"
    assert isinstance(bench.board, FakeBoard)
    assert bench.board.boots == 2
    first, again = bench.board.seeds
    assert first == again


def test_attempts_that_failed_are_kept_with_what_the_lab_did() -> None:
    fault = BoardError("hung", console_tail=("Oops",), hint="look at it")
    store, bench = FakeStore(), bench_of(shell=FakeShell(answer), meter=FakeMeter(None), faults=[fault])
    bench = replace(bench, store=store)
    taken = [(LabStep("transition", "BoardStrategy", 1, 1, 2),), (LabStep("run", "LabgridShell", 1, 3, 4),)]
    bench.take_steps = lambda: taken.pop(0)
    wanted = entry(bench, "write-16k")
    bench.measure(wanted)
    (kept,) = bench.run.faults
    assert (kept.number, kept.transient, kept.bug, kept.hint) == (wanted.number, True, False, "look at it")
    assert "Oops" in kept.what
    assert [each.title for each in kept.steps] == ["transition"]
    assert store.runs[-1].faults == (kept,)
    (step,) = decode_steps(store.attachments[wanted.number][STEPS_FILE])
    assert (step.title, step.duration_ms) == ("run", 4)


def test_what_is_no_fault_of_the_lab_is_kept_as_a_bug() -> None:
    def broken(_argv: tuple[str, ...]) -> CommandResult:
        raise ZeroDivisionError("by nothing")

    bench = bench_of(shell=FakeShell(broken), meter=FakeMeter(None))
    with pytest.raises(ZeroDivisionError):
        bench.measure(entry(bench, "write-16k"))
    (kept,) = bench.run.faults
    assert (kept.bug, kept.transient) == (True, False)
    assert kept.what.startswith("ZeroDivisionError: by nothing\n")
    assert "in broken" in kept.what


@pytest.mark.parametrize(("transient", "boots"), [(True, 2), (False, 1)])
def test_a_fault_that_stays_is_raised_with_the_board_off(boots: int, *, transient: bool) -> None:
    bench = bench_of(
        shell=FakeShell(answer), meter=FakeMeter(None), faults=[BoardError("hung", transient=transient)] * 2
    )
    with pytest.raises(LabError, match="hung"):
        bench.measure(entry(bench, "write-16k"))
    assert isinstance(bench.board, FakeBoard)
    assert (bench.board.boots, bench.board.powered) == (boots, False)


def taken_away(bench: Bench, when: Callable[[tuple[str, ...]], bool]) -> FakeBoard:
    """A board that somebody else takes as soon as it is asked for what `when` says."""
    board = bench.board
    assert isinstance(board, FakeBoard)

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if when(argv):
            board.lost = PlaceLostError("virtual", "ada has it")
        return answer(argv)

    board.shell.answer = answered
    return board


@pytest.mark.parametrize("program", ["mkfs.ext4", "mount", "cat", "dmesg"])
def test_a_place_that_is_lost_at_any_moment_ends_the_run_at_once_with_hands_off(program: str) -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    board = taken_away(bench, lambda argv: argv[0] == program)
    with pytest.raises(PlaceLostError, match="ada has it"):
        bench.measure(entry(bench, "write-16k"))
    assert board.boots == 1, "there is no second try"
    run = bench.finish()
    assert board.powered, "the board was left as it is"
    assert (run.status, run.abort_reason) == (RunStatus.ABORTED, board.lost and board.lost.what)
    assert [fault.what for fault in run.faults] == [run.abort_reason]
    assert isinstance(bench.store, FakeStore)
    assert not bench.store.measurements, "what may have been measured on another's board is not stored as ours"


def test_a_fault_on_a_board_that_was_taken_away_is_that_it_was() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(), faults=[BoardError("the board hung")])
    assert isinstance(bench.board, FakeBoard)
    boot = bench.board.boot

    def boot_and_lose(seed: int = 1) -> FakeShell:
        taken = taken_away(bench, lambda _argv: False)
        taken.lost = PlaceLostError("virtual", "ada has it")
        return boot(seed)

    bench.board.boot = boot_and_lose
    with pytest.raises(PlaceLostError, match="ada has it") as caught:
        bench.measure(entry(bench, "write-16k"))
    assert isinstance(caught.value.__cause__, BoardError)


def test_where_nobody_can_say_whose_the_board_is_nothing_is_measured_and_it_is_switched_off() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    assert isinstance(bench.board, FakeBoard)
    bench.board.lost = LabError("the coordinator cannot be reached", transient=True)
    with pytest.raises(LabError, match="the coordinator cannot be reached"):
        bench.measure(entry(bench, "write-16k"))
    assert bench.board.boots == 0
    assert not bench.board.powered
    assert len(bench.run.faults) == 2, "it was tried again: a coordinator may come back"


def test_one_boot_serves_a_repetition() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(None))
    for planned in bench.plan.entries:
        bench.measure(planned)
    assert isinstance(bench.board, FakeBoard)
    assert bench.board.boots == 1
    run = bench.finish()
    assert run.status is RunStatus.COMPLETE
    assert not bench.board.powered
    assert {"boot", "flash", "provisioning", "fio", "timed", "idle", "board_on"} <= run.phases_s.keys()


def test_each_entry_is_measured_on_its_storage_device() -> None:
    def answered(argv: tuple[str, ...]) -> CommandResult:
        told = {"/sys/class/block/sda/size": "1048576\n", "/sys/class/block/sda/device/model": "QEMU HARDDISK\n"}
        return CommandResult(argv, 0, told[argv[-1]]) if argv[-1] in told else answer(argv)

    shell = FakeShell(answered)
    bench = bench_of(shell=shell, meter=FakeMeter(None))
    bench = replace(bench, profile=replace(PROFILE, storages={"stick": Storage("sda", 512 * MIB)}))
    written = entry(bench, "write-16k")
    measured_on = [
        bench.measure(replace(written, number=101 + i, storage=name)).series.storage
        for i, name in enumerate(("card", "stick", "stick", "card"))
    ]
    assert measured_on == ["card", "stick QEMU HARDDISK", "stick QEMU HARDDISK", "card"]
    made = [argv[-1] for argv in shell.asked if argv[0] == "mkfs.ext4"]
    assert made == ["/dev/mmcblk1p3", "/dev/fsjoule/sda", "/dev/fsjoule/sda", "/dev/mmcblk1p3"]
    assert [argv[1] for argv in shell.asked if argv[0].endswith("/attach")] == ["sda"]


@pytest.mark.parametrize(("largest", "purged"), [("0", 2), ("4294966784", 3)])
def test_a_stick_that_takes_no_discards_is_not_purged(largest: str, purged: int) -> None:
    def answered(argv: tuple[str, ...]) -> CommandResult:
        told = {"/sys/class/block/sda/size": "1048576", "/sys/class/block/sda/queue/discard_max_bytes": largest}
        return CommandResult(argv, 0, told[argv[-1]] + "\n") if argv[-1] in told else answer(argv)

    shell = FakeShell(answered)
    bench = bench_of(shell=shell, meter=FakeMeter(None))
    bench = replace(bench, profile=replace(PROFILE, purge=True, storages={"stick": Storage("sda", 512 * MIB)}))
    written = entry(bench, "write-16k")
    for i, name in enumerate(("card", "stick", "card")):
        bench.measure(replace(written, number=101 + i, storage=name))
    assert len([argv for argv in shell.asked if argv[0] == "blkdiscard"]) == purged


def test_no_two_filesystems_of_a_boot_have_one_uuid() -> None:
    shell = FakeShell(answer)
    bench = bench_of(shell=shell, meter=FakeMeter(None))
    bench = replace(bench, profile=replace(PROFILE, guest_time=True))
    written = entry(bench, "write-16k")
    assert isinstance(written.workload, FioWorkload)
    larger = replace(written, number=101, workload=replace(written.workload, size_bytes=64 * MIB))
    for planned in (written, larger, replace(written, number=102, suite="elc2015/mixed")):
        bench.measure(planned)
    uuids = [argv[argv.index("-U") + 1] for argv in shell.asked if argv[0] == "mkfs.ext4"]
    assert len(set(uuids)) == len(uuids) == 3


def test_a_boot_is_measured_from_mark_to_mark() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(traced("Sboot", "Eboot", runtime_s=0.3)))
    result = bench.measure(entry(bench, TimedKind.BOOT.value))
    assert result.valid, result.invalid_reasons
    assert result.duration_s == pytest.approx(0.3)
    assert result.boot == 1


def test_joules_of_another_meter_are_not_stored() -> None:
    """A swapped meter needs a hand: no second try, and nothing of the measurement is kept but why."""
    store, meter = FakeStore(), FakeMeter()
    bench = bench_of(shell=FakeShell(answer), meter=meter)
    bench = replace(bench, store=store)
    first, second = entry(bench, "write-16k"), entry(bench, "read-16k")
    ours = traced(f"S{first.number}", f"E{first.number}", runtime_s=runtime_s() + 0.01)
    meter.trace = ours
    bench.measure(first)
    other = replace(ours.info, serial_number="u", shunt_uohm=50_000, calibration=MeterCalibration(gain_date=1))
    meter.trace = replace(traced(f"S{second.number}", f"E{second.number}"), info=other)
    words = (
        "this is not the meter of the run: serial was t, it is u now; shunt was 0.1 Ohm, it is 0.05 Ohm now; "
        "calibration's gain date was 0, it is 1 now"
    )
    with pytest.raises(InstrumentError, match=words) as caught:
        bench.measure(second)
    assert (caught.value.ends_run, caught.value.transient, caught.value.exit_code) == (True, False, 4)
    assert [each.number for each in store.measurements] == [first.number]
    assert bench.run.meter == ours.info
    (fault,) = bench.run.faults
    assert fault.what == words
    assert isinstance(bench.board, FakeBoard)
    assert not bench.board.powered
    assert bench.finish(expected=2).abort_reason == words


def test_a_meter_that_takes_the_place_of_the_runs_in_its_first_measurement_is_another_one() -> None:
    store, meter = FakeStore(), FakeMeter()
    bench = bench_of(shell=FakeShell(answer), meter=meter)
    bench = replace(bench, store=store)
    first = entry(bench, "write-16k")
    ours = traced(f"S{first.number}", f"E{first.number}", runtime_s=runtime_s() + 0.01)
    meter.trace = ours
    bench.begin()
    meter.trace = replace(ours, info=replace(ours.info, serial_number="u"))
    with pytest.raises(InstrumentError, match="serial was t, it is u now"):
        bench.measure(first)
    assert bench.run.meter == ours.info
    assert store.measurements == []


def test_a_meter_that_was_silent_at_first_is_noted_when_it_speaks() -> None:
    store, meter = FakeStore(), FakeMeter(None)
    bench = bench_of(shell=FakeShell(answer), meter=meter)
    bench = replace(bench, store=store)
    bench.measure(entry(bench, "write-16k"))
    assert bench.run.meter is None
    wanted = entry(bench, "read-16k")
    trace = traced(f"S{wanted.number}", f"E{wanted.number}")
    meter.trace = trace
    bench.measure(wanted)
    assert bench.run.meter == store.runs[-1].meter == trace.info


def test_an_unfinished_run_says_why() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(None))
    bench.measure(bench.plan.entries[0])
    run = bench.finish("interrupted")
    assert (run.status, run.abort_reason) == (RunStatus.ABORTED, "interrupted")
    assert bench_of(shell=FakeShell(answer), meter=FakeMeter(None)).finish().status is RunStatus.ABORTED


def test_what_died_in_the_lab_is_told_before_what_came_of_it() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(), faults=[BoardError("no login")] * 2)
    bench.diagnose = lambda: ("the lab's exporter died",)
    with pytest.raises(BoardError, match=r"^the lab's exporter died: no login$"):
        bench.measure(bench.plan.entries[0])
    assert [fault.what for fault in bench.run.faults] == ["the lab's exporter died: no login"] * 2
