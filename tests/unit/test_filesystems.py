"""Filesystems as data: their programs' arguments."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from fsjoule.errors import ConfigError
from fsjoule.filesystems import FILESYSTEMS, filesystem, unmount_argv

ONE = UUID("01234567-89ab-4def-8123-456789abcdef")


def test_a_uuid_of_ones_own_is_given_as_each_program_takes_it() -> None:
    assert filesystem("btrfs").make_argv("/dev/x", ONE)[-3:] == ("-U", str(ONE), "/dev/x")
    assert filesystem("xfs").make_argv("/dev/x", ONE)[-3:] == ("-m", f"uuid={ONE}", "/dev/x")
    assert filesystem("vfat").make_argv("/dev/x", ONE)[-3:] == ("-i", "01234567", "/dev/x")
    assert filesystem("udf").make_argv("/dev/x", ONE)[-2:] == ("--uuid=0123456789ab4def", "/dev/x")


@pytest.mark.parametrize("name", [row.name for row in FILESYSTEMS.values() if not row.read_only])
def test_without_one_nothing_is_said_of_it(name: str) -> None:
    kind = filesystem(name)
    assert re.search(r"/dev/x\b", " ".join(kind.make_argv("/dev/x")))
    assert not re.search(r"[{}]", " ".join(kind.make_argv("/dev/x", ONE)))


def test_a_variant_is_the_filesystem_with_more_options() -> None:
    plain, variant = filesystem("ext4"), filesystem("ext4:nojournal+noatime")
    assert variant.name == "ext4:noatime+nojournal"
    assert variant.make_argv("/dev/x") == (*plain.make, "-O", "^has_journal", "/dev/x")
    assert variant.mount_argv("/dev/x", "/mnt")[:5] == ("mount", "-t", "ext4", "-o", "noinit_itable,noatime")
    assert variant.check == plain.check


def test_a_filesystem_can_be_made_and_mounted_by_programs_of_its_own() -> None:
    zfs = filesystem("zfs:zstd+noatime")
    made = zfs.make_argv("/dev/x")
    assert made[:4] == ("sh", "-c", '"$@" && zpool export fsjoule', "sh")
    assert made[-4:] == ("-O", "compression=zstd", "fsjoule", "/dev/x")
    imported = ("env", "ZFS_VDEV_DEVID_OPT_OUT=YES", "zpool", "import", "-f", "-d", "/dev/x", "-R", "/mnt")
    assert zfs.mount_argv("/dev/x", "/mnt") == (*imported, "-o", "noatime", "fsjoule")
    assert filesystem("zfs").mount_argv("/dev/x", "/mnt") == (*imported, "fsjoule")


def test_a_filesystem_is_unmounted_as_the_kernels_name_of_it_says() -> None:
    assert unmount_argv("zfs", "/mnt") == filesystem("zfs").unmount_argv("/mnt") == ("zpool", "export", "fsjoule")
    assert unmount_argv("ext3", "/mnt") == unmount_argv("unheard-of", "/mnt") == ("umount", "/mnt")


def test_the_order_of_variants_makes_no_other_series() -> None:
    assert filesystem("btrfs:zstd+noatime+zstd") == filesystem("btrfs:noatime+zstd")
    assert filesystem(filesystem("btrfs:zstd+noatime").name) == filesystem("btrfs:noatime+zstd")


@pytest.mark.parametrize("name", [f"{row.name}:{variant}" for row in FILESYSTEMS.values() for variant in row.variants])
def test_each_variant_changes_something(name: str) -> None:
    plain = filesystem(name.partition(":")[0])
    assert filesystem(name).name == name
    made, usual = ((kind.make, kind.mount_options, kind.verity) for kind in (filesystem(name), plain))
    assert made != usual


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("reiserfs", "btrfs, .*ext2"),
        ("btrfs:lz4", "lzo.*zstd"),
        ("ext4:", "nojournal"),
        ("vfat:noatime,zstd", "noatime"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(name: str, choices: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){choices}"):
        filesystem(name)


@pytest.mark.parametrize(
    ("name", "both"),
    [
        ("squashfs:xz+lz4", "lz4 and xz"),
        ("erofs:cluster16k+cluster64k", "cluster16k and cluster64k"),
        ("ubifs:zlib+zstd", "zlib and zstd"),
        ("jffs2:lzo+nocompression", "lzo and nocompression"),
        ("btrfs:zstd+lzo", "lzo and zstd"),
        ("zfs:zstd+nocompression", "nocompression and zstd"),
        ("ext4:defaults2022+defaults2023", "defaults2022 and defaults2023"),
    ],
)
def test_variants_that_set_the_same_exclude_each_other(name: str, both: str) -> None:
    with pytest.raises(ConfigError, match=f"{both} exclude each other"):
        filesystem(name)
    for one in ("ext4:defaults2022+nojournal", "zfs:record16k+zstd", "erofs:cluster64k+lz4hc"):
        assert filesystem(one).name == one


@pytest.mark.parametrize("name", ["squashfs:gzip", "erofs:snappy", "jffs2:zlib", "ubifs:lz4"])
def test_a_compressor_that_is_no_variant_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown variant of"):
        filesystem(name)


def test_a_variant_takes_the_place_of_a_property() -> None:
    def direct(name: str) -> list[str]:
        return [word for word in filesystem(name).make_argv("/dev/x") if word.startswith("direct=")]

    assert direct("zfs") == direct("zfs:zstd") == ["direct=disabled"]
    assert direct("zfs:direct") == ["direct=standard"]
    assert filesystem("zfs:direct").make.count("-O") == 1
