"""The scratch partition, on a board that is told what it has mounted."""

from __future__ import annotations

import pytest

from fsjoule.bench.scratch import SCRATCH_DIRECTORY, Scratch, filesystem_step, lab_step, perform
from fsjoule.errors import BoardError, LabError, MeasurementInvalid
from fsjoule.filesystems import filesystem
from fsjoule.ports import CommandResult
from fsjoule.testing import FakeShell


def scratch_with(*mounted: str) -> Scratch:
    lines = ["/dev/root / ext4 rw 0 0", *(f"x {SCRATCH_DIRECTORY} {kind} rw 0 0" for kind in mounted)]

    def answer(argv: tuple[str, ...]) -> CommandResult:
        return CommandResult(argv, 0, "\n".join(lines) if argv[0] == "cat" else "")

    return Scratch(FakeShell(answer), "/dev/x", purge=False)


def asked(scratch: Scratch) -> list[tuple[str, ...]]:
    assert isinstance(scratch.shell, FakeShell)
    return [argv for argv in scratch.shell.asked if argv[0] not in ("cat", "mkdir")]


@pytest.mark.parametrize("name", ["ext4", "zfs"])
def test_whatever_is_mounted_is_unmounted_in_its_own_way(name: str) -> None:
    scratch = scratch_with(name)
    scratch.unmount()
    assert asked(scratch) == [filesystem(name).unmount_argv(SCRATCH_DIRECTORY)]


def test_a_device_that_is_mounted_elsewhere_is_not_overwritten() -> None:
    def answer(argv: tuple[str, ...]) -> CommandResult:
        return CommandResult(argv, 0, "/dev/x / btrfs rw 0 0\n" if argv[0] == "cat" else "")

    scratch = Scratch(FakeShell(answer), "/dev/x", purge=True)
    with pytest.raises(BoardError, match="/dev/x, which may be overwritten, is mounted on the board"):
        scratch.make(filesystem("ext4"))
    assert asked(scratch) == []


def test_a_device_that_is_mounted_as_scratch_is_made_anew() -> None:
    def answer(argv: tuple[str, ...]) -> CommandResult:
        return CommandResult(argv, 0, f"/dev/x {SCRATCH_DIRECTORY} ext4 rw 0 0\n" if argv[0] == "cat" else "")

    scratch = Scratch(FakeShell(answer), "/dev/x", purge=False)
    scratch.make(filesystem("ext4"))
    assert [argv[0] for argv in asked(scratch)] == ["umount", "mkfs.ext4"]


def test_nothing_mounted_is_nothing_to_unmount() -> None:
    scratch = scratch_with()
    scratch.unmount()
    assert asked(scratch) == []


def test_a_filesystem_that_keeps_a_cache_is_mounted_again_to_forget_it() -> None:
    zfs, scratch = filesystem("zfs"), scratch_with("zfs")
    assert scratch.forgetting(filesystem("ext4")) == []
    perform(scratch.shell, scratch.forgetting(zfs))
    mount = zfs.mount_argv(scratch.device, SCRATCH_DIRECTORY)
    assert asked(scratch) == [zfs.unmount_argv(SCRATCH_DIRECTORY), mount]


def test_steps_end_with_the_first_one_that_fails_and_say_whose_fault_it_is() -> None:
    shell = FakeShell(lambda argv: CommandResult(argv, int(argv[0] == "mkfs"), "no room" * (argv[0] == "mkfs")))
    with pytest.raises(MeasurementInvalid, match=r"`mkfs /dev/x` ended with exit code 1: no room$"):
        perform(shell, [lab_step("sync"), filesystem_step("mkfs", "/dev/x"), lab_step("mount")])
    assert shell.asked == [("sync",), ("mkfs", "/dev/x"), ("dmesg",)]
    with pytest.raises(LabError, match=r"on the board, `mkfs` failed \(1\): no room"):
        perform(shell, [lab_step("mkfs")])


def test_a_mount_that_the_kernel_refuses_is_told_in_the_kernels_words() -> None:
    said = "[    9.1] mmc0: new card\n" * 3 + "[ 12.3] XFS (x): Superblock has unknown incompatible features (0x20)"

    def answer(argv: tuple[str, ...]) -> CommandResult:
        of_mount = CommandResult(argv, 32, "mount: /x: wrong fs type, bad superblock")
        return of_mount if argv[0] == "mount" else CommandResult(argv, 0, said if argv[0] == "dmesg" else "")

    scratch = Scratch(FakeShell(answer), "/dev/x", purge=False)
    why = r"32: mount: .*; the kernel: .*, XFS \(x\): Superblock has unknown incompatible features \(0x20\)$"
    with pytest.raises(MeasurementInvalid, match=why):
        scratch.mount(filesystem("xfs"))


def test_a_refusal_has_the_programs_first_words_and_no_lines_of_before() -> None:
    usage = "unknown option -b nosuch=1\n" + "Usage: mkfs.xfs\n" * 40
    log = "XFS (x): Unmounting Filesystem\n[ 9.1] EXT4-fs (x): unmounting filesystem.\n"
    shell = FakeShell(lambda argv: CommandResult(argv, int(argv[0] != "dmesg"), log if argv[0] == "dmesg" else usage))
    with pytest.raises(MeasurementInvalid) as refused:
        perform(shell, [filesystem_step("mkfs.xfs", "/dev/x")])
    [reason] = refused.value.reasons
    assert reason.startswith("`mkfs.xfs /dev/x` ended with exit code 1: unknown option -b nosuch=1 Usage: mkfs.xfs")
    assert "\n" not in reason
    assert "nmounting" not in reason
