"""The use case over fakes of the ports: figures, marks, and what makes a measurement invalid."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_bench import IMAGE, PROFILE, answer, bench_of, entry, runtime_s, traced

from fsjoule.errors import BoardError
from fsjoule.images.partition_table import partition_table
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.model import (
    MIB,
    FioWorkload,
    HostLoad,
    Measurement,
    Provision,
    RunStatus,
    Storage,
    TimedKind,
)
from fsjoule.model.labels import series_labels
from fsjoule.ports import CommandResult
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell


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


def test_a_silent_meter_costs_the_energy_not_the_measurement() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(None))
    result = bench.measure(entry(bench, "write-16k"))
    assert result.valid
    assert result.throughput_mib_per_s is not None
    assert result.energy is None
    assert result.energy_mj_per_mib is None
    assert any("silent" in note for note in result.notes)


def test_marks_that_did_not_arrive_make_it_invalid() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(traced("S99", "E99")))
    result = bench.measure(entry(bench, "write-16k"))
    assert any("did not both arrive (seen: S99, E99)" in reason for reason in result.invalid_reasons)
    assert result.energy is None


def test_a_busy_computer_is_recorded_and_named_by_what_it_made_invalid() -> None:
    clock = FakeClock(busy=7.1)
    for marks, valid in ((), True), (("S99", "E99"), False):
        meter = FakeMeter(traced(*marks) if marks else None)
        bench = replace(bench_of(shell=FakeShell(answer), meter=meter), clock=clock)
        result = bench.measure(entry(bench, "write-16k"))
        assert result.valid == valid
        assert any(note.startswith("the computer was busy") for note in result.notes)
        assert ("the computer was busy: load 7.1 on 2 processor cores" in result.invalid_reasons) != valid
        assert bench.run.load == HostLoad(2, 7.1, 7.1)
        in_guest_time = replace(bench, profile=replace(PROFILE, guest_time=True))
        assert not any("busy" in note for note in in_guest_time.measure(entry(bench, "read-16k")).notes)


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


OOPS = "[ 253.001] Unable to handle kernel NULL pointer dereference at virtual address 00000010\n"
WARNING = "[ 252.000] WARNING: CPU: 0 PID: 412 at fs/ext4/inode.c:3689 ext4_iomap_begin+0x1a4/0x2c0\n"


def test_an_oops_ends_its_boot_and_the_next_figure_comes_from_another() -> None:
    said = iter((WARNING, OOPS, ""))

    def with_oops(argv: tuple[str, ...]) -> CommandResult:
        return CommandResult(argv, 0, next(said)) if argv == ("dmesg",) else answer(argv)

    bench = bench_of(shell=FakeShell(with_oops), meter=FakeMeter(None))
    warned, died, after = (bench.measure(entry(bench, slug)) for slug in ("mkfs", "mount", "umount"))
    warning = "WARNING fs/ext4/inode.c ext4_iomap_begin"
    assert (warned.valid, warned.kernel_warnings) == (True, (warning,))
    assert (died.valid, died.kernel_warnings) == (False, (warning, "Oops"))
    assert (after.valid, after.kernel_warnings) == (True, ())
    assert [each.boot for each in (warned, died, after)] == [1, 1, 2]


@pytest.mark.parametrize(("label", "ours"), [("dos", True), ("gpt", True), ("other", False)])
def test_a_disk_that_has_the_cards_name_is_left_alone(label: str, ours: bool, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4 * MIB))
    recipes = {"dos": "imx6ul", "gpt": "stm32mp157c-dk2"}
    known = label in recipes
    table = partition_table(load_recipe(recipes_folder(), recipes[label])) if known else "label: dos\nlabel-id: 0x1\n"
    header = "".join(line for line in table.splitlines(keepends=True) if line.startswith("label"))
    subprocess.run(["sfdisk", "-q", disk], input=header, text=True, check=True)

    def reading(argv: tuple[str, ...]) -> CommandResult:
        if not argv[-1].endswith("od -An -v -tx1"):
            return answer(argv)
        script = argv[-1].replace("/dev/mmcblk1", str(disk))
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        return CommandResult(argv, 0, done.stdout)

    shell = FakeShell(reading)
    bench = bench_of(shell=shell, meter=FakeMeter(None))
    if ours:
        assert bench.measure(entry(bench, "mkfs")).valid
        return
    with pytest.raises(BoardError, match="is not the card that fsjoule has written") as caught:
        bench.measure(entry(bench, "mkfs"))
    assert not caught.value.transient
    assert not [argv for argv in shell.asked if argv[0].startswith("mkfs")]


def test_an_oops_while_the_board_boots_spoils_the_boot() -> None:
    def with_oops(argv: tuple[str, ...]) -> CommandResult:
        return CommandResult(argv, 0, OOPS) if argv[-1].startswith("dmesg |") else answer(argv)

    bench = bench_of(shell=FakeShell(with_oops), meter=FakeMeter(None))
    found = [bench.measure(entry(bench, slug)) for slug in ("mkfs", "mount")]
    assert [each.invalid_reasons for each in found] == [
        (f"earlier in this boot the kernel reported: {OOPS.strip()}",)
    ] * 2
    assert [each.boot for each in found] == [1, 1]


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


def test_a_series_of_an_emulated_card_names_its_emulator() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(None))
    bench.run = replace(bench.run, versions={"qemu": "QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)"})
    assert bench.measure(entry(bench, "write-16k")).series.storage == "card (QEMU 10.0)"


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


def test_an_unfinished_run_says_why() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(None))
    bench.measure(bench.plan.entries[0])
    run = bench.finish("interrupted")
    assert (run.status, run.abort_reason) == (RunStatus.ABORTED, "interrupted")
    assert bench_of(shell=FakeShell(answer), meter=FakeMeter(None)).finish().status is RunStatus.ABORTED
