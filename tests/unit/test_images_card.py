from __future__ import annotations

import lzma
import re
import stat
import struct
import zlib
from pathlib import Path

import pytest

from fsjoule.errors import HostError
from fsjoule.host import process
from fsjoule.images.boot_files import extlinux_text, kernel_arguments
from fsjoule.images.card import copy_data
from fsjoule.images.initramfs import CpioArchive
from fsjoule.images.partition import fill_holes, xfs_prototype
from fsjoule.images.partition_table import partition_table
from fsjoule.kernels.card_layout import SECTOR_BYTES, CardLayout, overlap
from fsjoule.kernels.image import text_offset, unpacked_kernel
from fsjoule.kernels.legacy_image import legacy_image
from fsjoule.kernels.recipe import Recipe, RootFilesystem, load_recipe
from fsjoule.model import MIB

RECIPE = load_recipe(Path(__file__).parents[2] / "images")


def test_the_command_line_names_root_console_and_mark() -> None:
    words = kernel_arguments(RECIPE, "btrfs").split()
    assert words[0] == "console=ttymxc0,115200"
    assert {"root=/dev/mmcblk1p2", "rootfstype=btrfs", "rootwait", "rw", "fsjoule.mark=/dev/ttymxc1"} <= set(words)
    assert not any(word.startswith("rootflags") for word in words)


def test_mount_options_of_the_root_become_rootflags() -> None:
    filesystems = {"btrfs": RootFilesystem(mount_options="compress=zstd,noatime")}
    recipe: Recipe = RECIPE.model_copy(update={"roots": filesystems})
    assert recipe.filesystem("btrfs").as_root.mount_options == ("compress=zstd", "noatime")
    assert "rootflags=compress=zstd,noatime" in kernel_arguments(recipe, "btrfs").split()


def test_extlinux_names_the_files_of_the_boot_partition() -> None:
    lines = [line.strip() for line in extlinux_text("uImage", "console=x root=y", device_tree=True).splitlines()]
    assert lines[:2] == ["DEFAULT fsjoule", "LABEL fsjoule"]
    assert lines[2:] == ["LINUX /uImage", "INITRD /initrd.img", "FDT /board.dtb", "APPEND console=x root=y"]


def test_partitions_are_aligned_and_in_sectors() -> None:
    lines = [line for line in partition_table(RECIPE).splitlines() if line.startswith("start=")]
    assert lines == [
        "start=8192, size=131072, type=e, bootable",
        "start=139264, size=851968, type=83",
        "start=991232, size=1105920, type=83",
    ]


@pytest.mark.parametrize(("table", "gap"), [("dos", 0), ("gpt", 2048)])
def test_a_second_root_of_the_same_size_is_the_last_partition(table: str, gap: int) -> None:
    layout = CardLayout.model_validate({**RECIPE.card.model_dump(), "table": table, "second_root": True})
    recipe = RECIPE.model_copy(update={"card": layout})
    lines = [line for line in partition_table(recipe).splitlines() if line.startswith("start=")]
    places = [[int(number) for number in re.findall(r"(?:start|size)=(\d+)", line)] for line in lines]
    root, scratch, second = places[-3:]
    assert second[1] == root[1]
    assert sum(scratch) == second[0]
    assert sum(second) + gap == layout.size_mib * MIB // SECTOR_BYTES
    assert overlap(layout, RECIPE.boot_loader, {}) is None


def test_only_the_data_of_a_sparse_file_is_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.truncate(64 * MIB)
        file.write(b"first")
        file.seek(40 * MIB)
        file.write(b"second")
    target.touch()
    with target.open("r+b") as file:
        file.truncate(128 * MIB)
    copy_data(source, target, 16 * MIB)
    content = target.read_bytes()
    assert len(content) == 128 * MIB
    assert content[16 * MIB :].startswith(b"first\0")
    assert content[56 * MIB :].startswith(b"second\0")
    assert target.stat().st_blocks * 512 < MIB


def test_holes_are_filled_and_data_kept(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(5 * MIB + 123)
        file.seek(2 * MIB)
        file.write(b"data")
    before = image.read_bytes()
    fill_holes(image)
    assert image.read_bytes() == before
    assert image.stat().st_blocks * 512 >= 5 * MIB


def test_cpio_itself_reads_the_archive(tmp_path: Path) -> None:
    archive = CpioArchive()
    archive.add("bin", stat.S_IFDIR | 0o755)
    archive.add("bin/tool", stat.S_IFREG | 0o755, b"#!/bin/true\n")
    archive.add("bin/link", stat.S_IFLNK | 0o777, b"tool")
    archive.add("console", stat.S_IFCHR | 0o600, device=(5, 1))
    content = archive.finish()
    assert len(content) % 512 == 0
    process.run(["cpio", "--extract", "--quiet", "bin", "bin/*"], cwd=tmp_path, input_bytes=content, timeout_s=10)
    assert (tmp_path / "bin" / "link").read_bytes() == b"#!/bin/true\n"
    assert (tmp_path / "bin" / "tool").stat().st_mode == stat.S_IFREG | 0o755
    listed = process.run(["cpio", "--list", "--verbose", "--quiet"], input_bytes=content, timeout_s=10).stdout.decode()
    assert any(line.startswith("crw-------") and "5,   1" in line for line in listed.splitlines())


def test_an_xfs_prototype_has_every_file_with_its_mode(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir(mode=0o755)
    (tmp_path / "bin" / "su").touch()
    (tmp_path / "bin" / "su").chmod(0o4755)
    (tmp_path / "init").symlink_to("bin/su")
    assert xfs_prototype(tmp_path).splitlines() == [
        "/",
        "0 0",
        "d--755 0 0",
        "bin d--755 0 0",
        f"su -u-755 0 0 {tmp_path}/bin/su",
        "$",
        "init l--777 0 0 bin/su",
        "$",
        "$",
    ]


def test_names_that_an_xfs_prototype_cannot_hold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a name").touch()
    with pytest.raises(HostError, match="a name"):
        xfs_prototype(tmp_path)


KERNEL = b"\x2e\x40\x04\xeb" * 10_000


def zimage(instructions: list[int]) -> bytes:
    """A zImage as far as it is looked at: the magic number, a decompressor, a packed kernel."""
    code = bytearray(16384)
    struct.pack_into("<I", code, 0x24, 0x016F2818)
    for number, word in enumerate(instructions):
        struct.pack_into("<I", code, 0x1000 + 4 * number, word)
    return bytes(code) + b"\xfd7zXZ\0 is the magic number" + lzma.compress(KERNEL, format=lzma.FORMAT_XZ) + b"size"


@pytest.mark.parametrize(
    ("instruction", "offset"), [(0xE2844982, 0x208000), (0xE28049C2, 0x308000), (0xE2844902, 0x8000)]
)
def test_the_offset_is_read_from_the_decompressor(instruction: int, offset: int) -> None:
    assert text_offset(zimage([0xE1A00000, instruction, 0xE2855001])) == offset


@pytest.mark.parametrize("instructions", [[], [0xE2844982, 0xE28049C2]])
def test_an_offset_that_is_not_certain_is_none(instructions: list[int]) -> None:
    assert text_offset(zimage(instructions)) is None
    assert unpacked_kernel(zimage(instructions), memory_base=0x8000_0000, name="x") is None


def test_a_kernel_is_unpacked_and_says_where_it_belongs() -> None:
    unpacked = unpacked_kernel(zimage([0xE2844982]), memory_base=0x8000_0000, name="6.1.0-armmp")
    assert unpacked is not None
    file, image = unpacked
    assert file == "uImage"
    assert image[64:] == KERNEL
    assert image == legacy_image(KERNEL, load_address=0x8020_8000, name="6.1.0-armmp")
    magic, checksum, _time, size, load, entry, data_checksum = struct.unpack_from(">7I", image)
    assert (magic, size, load, entry) == (0x27051956, len(KERNEL), 0x8020_8000, 0x8020_8000)
    assert data_checksum == zlib.crc32(KERNEL)
    assert checksum == zlib.crc32(image[:4] + bytes(4) + image[8:64])


def test_what_is_no_zimage_is_none() -> None:
    assert unpacked_kernel(b"MZ" + bytes(100_000), memory_base=0, name="x") is None
    assert text_offset(b"") is None
