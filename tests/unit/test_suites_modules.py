"""A kernel that lacks what a suite needs, or does not know what a filesystem is made with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from results_factory import KERNEL

from fsjoule.errors import ConfigError
from fsjoule.filesystems import FILESYSTEMS, filesystem
from fsjoule.images import build_card
from fsjoule.kernels import TakenKernel
from fsjoule.kernels.kernel import KernelFiles
from fsjoule.suites import check_modules, suite


@pytest.mark.parametrize(
    ("part", "lacks", "complaint"),
    [
        ("elc2015/dm-flakey", ("dm-flakey",), "elc2015/dm-flakey needs modules that the kernel .* lacks: dm-flakey"),
        ("elc2015", ("dm-flakey",), "elc2015/dm-flakey needs"),
        ("elc2015/power-loss", ("f2fs",), "has no f2fs"),
        ("elc2015/power-loss", ("dm-flakey", "ntfs3", "bcachefs"), ""),
        ("elc2015/dm-flakey", (), ""),
    ],
)
def test_a_kernel_without_what_is_measured_is_refused_at_once(
    part: str, lacks: tuple[str, ...], complaint: str
) -> None:
    kernel = replace(KERNEL, lacks=lacks)
    if complaint:
        with pytest.raises(ConfigError, match=complaint):
            check_modules(suite(part), ("ext4", "f2fs"), kernel)
    else:
        check_modules(suite(part), ("ext4", "f2fs"), kernel)


def test_an_absent_module_is_told_with_the_kernels_that_have_it() -> None:
    kernel = replace(KERNEL, label="6.1", lacks=("ntfs3",))
    with pytest.raises(
        ConfigError, match=r"the kernel 6\.1 has no ntfs3:cluster64k: it lacks ntfs3 \(.*Debian's kernels since 6\.12"
    ):
        check_modules(suite("quick"), ("ntfs3:cluster64k",), kernel)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ext4:defaults2023", "5.10.0-35-armmp", "5.15.0"),
        ("ext4:mkfs=-O orphan_file", "5.10.0-35-armmp", "6.1.0-50-armmp"),
        ("xfs:mkfs=-i nrext64=1", "5.18.19", "5.19"),
        ("btrfs:mkfs=-O block-group-tree", "6.0.12-amd64", "6.1.0-50-armmp"),
        ("btrfs:mkfs=--features=bgt", "5.10.0", "6.12.117+deb13-armmp"),
        ("f2fs:zstd", "5.6.0", "5.7.0"),
        ("mine=xfs:mkfs=-m metadir=1", "6.12.117+deb13-armmp", "7.2.13"),
    ],
)
def test_options_newer_than_the_kernel_are_refused(name: str, old: str, new: str) -> None:
    check_modules(suite("quick"), ("ext4", name), replace(KERNEL, release=new))
    with pytest.raises(ConfigError, match=r"the kernel 6\.1 does not know .*: Linux has it since") as caught:
        check_modules(suite("quick"), ("ext4", name), replace(KERNEL, label="6.1", release=old))
    assert "nothing was made or erased" in str(caught.value)


@pytest.mark.parametrize(
    "name", [*FILESYSTEMS, "xfs:mkfs=-i nrext64=0", "ext4:defaults2022", "ext4:mkfs=-O ^orphan_file"]
)
def test_an_option_that_is_switched_off_needs_no_kernel(name: str) -> None:
    filesystem(name).check_kernel("5.10", "5.10.0-35-armmp")
    filesystem("ext4:defaults2023").check_kernel("mine", "")  # a kernel without a version


@pytest.mark.parametrize(
    ("roots", "root", "says"),
    [
        ('[roots.xfs]\nmake_options = ["-i", "nrext64=1"]\n', "xfs", r"does not know nrext64=1, .* since 5\.19"),
        ('[roots.ext4]\nmake_options = ["-O", "orphan_file"]\n', "ext4", "does not know orphan_file"),
    ],
)
def test_a_root_that_its_kernel_cannot_mount_is_not_made(tmp_path: Path, roots: str, root: str, says: str) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f'base = "imx6ul"\n{roots}')
    release = "5.10.0-35-armmp"
    files = KernelFiles("0", tmp_path, tmp_path / "zImage", release, "", {}, {})
    kernel = TakenKernel(replace(KERNEL, label="5.10", release=release), files)
    with pytest.raises(ConfigError, match=rf"the kernel 5\.10 {says}(.|\n)*nothing was made"):
        build_card(kernel, root, recipe=str(mine))
    assert list(tmp_path.iterdir()) == [mine]
