"""Read-only filesystems in plans, on scratch, and in a run's answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fsjoule.bench import data_image
from fsjoule.bench.scratch import Scratch, filesystem_step
from fsjoule.errors import ConfigError
from fsjoule.filesystems import FILESYSTEMS, filesystem, named_filesystems
from fsjoule.images.read_only import root_modules
from fsjoule.model import KIB, MIB, KernelFacts, KernelOrigin, Provision
from fsjoule.model.filesystem import Filesystem
from fsjoule.ports import CommandResult
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.suites.plan import check_modules
from fsjoule.testing import FakeShell
from fsjoule.verdicts.filesystems import beaten_by

ROOTS = tuple(row.name for row in FILESYSTEMS.values() if row.read_only)


def planning(*names: str) -> Planning:
    return Planning(named_filesystems(names), ("6.1",), 1, 1, root_filesystems=ROOTS)


def test_images_boot_as_roots_and_are_read_on_scratch() -> None:
    arranged = plan_entries(suite("root-image"), planning("squashfs:zstd", "erofs:verity"))
    where = {(e.filesystem, e.workload.slug): e.provision for e in arranged.entries}
    assert where == {
        ("squashfs:zstd", "boot"): Provision.ROOT,
        ("erofs:verity", "boot"): Provision.ROOT,
        ("squashfs:zstd", "mount"): Provision.SCRATCH,
        ("squashfs:zstd", "randread-4k"): Provision.SCRATCH,
        ("erofs:verity", "mount"): Provision.SCRATCH,
        ("erofs:verity", "randread-4k"): Provision.SCRATCH,
    }
    assert not arranged.left_out


def test_every_image_of_the_suite_can_be_planned() -> None:
    images = suite("root-image")
    roots = [e.filesystem for e in plan_entries(images, planning(*images.filesystems)).entries if e.workload.is_boot]
    assert sorted(roots) == sorted(filesystem(name).name for name in images.filesystems)


@pytest.mark.parametrize("name", ["quick", "operations", "advice", "files"])
def test_a_suite_that_writes_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(ConfigError, match=r"squashfs is read-only, and suite .* measures(.|\n)*--suite root-image"):
        plan_entries(suite(name), planning("squashfs"))


def test_reading_parts_of_a_suite_are_measured() -> None:
    wanted = Planning(("erofs",), ("6.1",), 1, 1, root_filesystems=ROOTS, workloads=("read-16k", "mount"))
    assert {e.workload.slug for e in plan_entries(suite("quick"), wanted).entries} == {"read-16k", "mount"}


def test_an_image_larger_than_the_boards_memory_is_refused() -> None:
    wanted = Planning(("erofs",), ("6.1",), 1, 1, root_filesystems=ROOTS, memory_bytes=16 * MIB)
    with pytest.raises(ConfigError, match=r"made in the board's memory, which has 16 MiB, from 4 MiB of files"):
        plan_entries(suite("root-image"), wanted)


def test_a_publication_leaves_out_what_writes() -> None:
    arranged = plan_entries(suite("elc2015"), planning("ext4", "squashfs"))
    assert "squashfs" not in {e.filesystem for e in arranged.entries if not e.workload.reads_an_image}
    assert any(each.endswith("squashfs is read-only") for each in arranged.left_out)


@pytest.mark.parametrize(("name", "lacking"), [("erofs:zstd", "EROFS_FS_ZIP_ZSTD"), ("squashfs", "squashfs")])
def test_a_kernel_without_module_or_compressor_is_named(name: str, lacking: str) -> None:
    kernel = KernelFacts("6.1", "6.1", KernelOrigin.DEBIAN, "6.1.0", "", lacks=("squashfs", "EROFS_FS_ZIP_ZSTD"))
    check_modules(suite("root-image"), ["erofs:lz4"], kernel)
    with pytest.raises(ConfigError, match=f"the kernel 6.1 has no {name}: it lacks {lacking}"):
        check_modules(suite("root-image"), [name], kernel)


def test_an_image_is_made_of_the_laid_out_files_and_then_written() -> None:
    scratch = Scratch(FakeShell(lambda argv: CommandResult(argv, 0, "")), "/dev/x", purge=True)
    steps = scratch.making(filesystem("squashfs:xz"), [filesystem_step("fio", data_image.FOLDER)])
    assert [step.command.argv[0] for step in steps] == [
        *("blkdiscard", "rm", "mkdir", "fio", "sh", "mksquashfs", "sh", "rm")
    ]
    made, written = steps[5].command.argv, steps[6].command.argv
    assert made[1] == data_image.FOLDER
    assert made[-2:] == ("-comp", "xz")
    assert written[-3:-1] == (made[2], "/dev/x")
    mount = scratch.mounting(filesystem("squashfs"))[-1].command.argv
    assert mount[:5] == ("mount", "-t", "squashfs", "-o", "ro")


def test_a_row_is_all_that_a_read_only_filesystem_needs() -> None:
    row = Filesystem(
        "romfs", "romfs", ("genromfs", "-V", "x"), read_only=("{options}", "-d", "{tree}", "-f", "{image}"),
        packages=("genromfs",), modules=("romfs",))  # fmt: skip
    assert row.image_argvs("tree", "file", files_kib=8) == (("genromfs", "-V", "x", "-d", "tree", "-f", "file"),)
    assert row.as_root.options == ("-V", "x")
    assert root_modules(row) == ("romfs", "overlay")
    steps = Scratch(FakeShell(lambda argv: CommandResult(argv, 0, "")), "/dev/x", purge=False).making(row)
    assert "genromfs" in {step.command.argv[0] for step in steps}


def test_the_front_has_what_no_other_beats() -> None:
    sizes = {"small": (1.0, 9.0), "quick": (9.0, 1.0), "worse": (9.5, 1.0), "between": (5.0, 5.0), "twin": (5.0, 5.0)}
    assert beaten_by(sizes) == {"small": "", "quick": "", "worse": "quick", "between": "", "twin": ""}


def test_a_checked_image_is_mounted_through_its_hash_tree(tmp_path: Path) -> None:
    scratch = Scratch(FakeShell(lambda argv: CommandResult(argv, 0, "")), "/dev/x", purge=False)
    scratch.unmount()
    assert ("sh", "-c") not in {argv[:2] for argv in asked(scratch)}, "nothing is closed that was never opened"
    kind = filesystem("erofs:verity")
    steps = scratch.making(kind)
    image = tmp_path / "image"
    image.write_bytes(bytes(5 * KIB))
    rounding = steps[-4].command.argv[2].partition("veritysetup")[0]
    subprocess.run(["sh", "-e", "-c", rounding, "sh", image], check=True, timeout=30)
    assert image.stat().st_size == 8 * KIB, "ext4 may have blocks of 1 KiB"
    assert "dmsetup create fsjoule-image --readonly" in steps[-2].command.argv[2]
    assert data_image.VERITY_NODE in scratch.mounting(kind)[-1].command.argv
    scratch.unmount()
    assert asked(scratch)[-1] == data_image.CLOSE_ARGV


def asked(scratch: Scratch) -> list[tuple[str, ...]]:
    assert isinstance(scratch.shell, FakeShell)
    return scratch.shell.asked
