"""A kernel for the second slot, taken from a small card image, and U-Boot's script for it."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.lab.flashers import Partition, boot_partition, partitions
from fsjoule.lab.second_slot import as_script, flag, flag_sector, read_slot, script
from fsjoule.model import MIB

EXTLINUX = """\
DEFAULT fsjoule
LABEL fsjoule
    LINUX /zImage
    INITRD /initrd.img
    FDT /board.dtb
    APPEND console=ttyS0 root=/dev/mmcblk0p2 rootfstype=ext4
"""
TABLE = b"label: dos\nstart=2048,size=8192,type=e,bootable\nstart=10240,size=16384,type=83\n"
SECOND_ROOT = b"start=26624,size=2048,type=83\nstart=28672,size=16384,type=83\n"


def _card(folder: Path, *, root: str = "ext4", extlinux: str = EXTLINUX, module: bytes = b"driver") -> Path:
    boot, tree, image = folder / "boot", folder / "tree", folder / "card.img"
    (boot / "extlinux").mkdir(parents=True)
    (boot / "extlinux" / "extlinux.conf").write_text(extlinux)
    for name in ("zImage", "initrd.img", "board.dtb"):
        (boot / name).write_bytes(name.encode())
    modules = tree / "usr" / "lib" / "modules" / "6.12.1" / "kernel"
    modules.mkdir(parents=True)
    (modules / "ext4.ko").write_bytes(module)
    fat, ext4 = folder / "boot.img", folder / "root.img"
    for path, size_mib in ((image, 24), (fat, 4), (ext4, 8)):
        with path.open("wb") as file:
            file.truncate(size_mib * MIB)
    process.run(["sfdisk", "--quiet", image], input_bytes=TABLE, timeout_s=60)
    process.run(["mkfs.vfat", fat], timeout_s=60)
    process.run(["mcopy", "-s", "-i", fat, *sorted(boot.iterdir()), "::"], timeout_s=60)
    process.run([f"mkfs.{root}", *(["-q", "-d", tree] if root == "ext4" else []), ext4], timeout_s=60)
    with image.open("r+b") as file:
        for place, part in ((MIB, fat), (5 * MIB, ext4)):
            file.seek(place)
            file.write(part.read_bytes())
    return image


def test_a_slot_has_the_files_of_the_image_under_names_of_their_own(tmp_path: Path) -> None:
    slot = read_slot(_card(tmp_path))
    assert slot.release == "6.12.1"
    assert {name.partition("-")[2]: content for name, content in slot.files.items()} == {
        name: name.encode() for name in ("zImage", "initrd.img", "board.dtb")
    }
    lines = slot.entry.decode().splitlines()
    assert lines[-1] == f"    APPEND console=ttyS0 root=/dev/mmcblk0p2 rootfstype=ext4 fsjoule.slot={slot.name}"
    assert {line.split()[1].removeprefix("/second/") for line in lines[2:5]} == set(slot.files)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(slot.modules))) as tar:
        assert "6.12.1/kernel/ext4.ko" in tar.getnames()


def test_a_slot_has_the_same_name_each_time_and_another_one_with_another_module(tmp_path: Path) -> None:
    image = _card(tmp_path / "one")
    assert read_slot(image) == read_slot(image)
    assert read_slot(_card(tmp_path / "two", module=b"another")).name != read_slot(image).name


def test_an_image_without_what_the_slot_needs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"the modules of .* cannot be read: its root is not a whole ext4"):
        read_slot(_card(tmp_path / "fat", root="vfat"))
    with pytest.raises(LabError, match="names no kernel, or no root partition"):
        read_slot(_card(tmp_path / "fourth", extlinux=EXTLINUX.replace("mmcblk0p2", "mmcblk0p4")))
    with pytest.raises(LabError, match="names no kernel, or no root partition"):
        read_slot(_card(tmp_path / "label", extlinux=EXTLINUX.replace("/dev/mmcblk0p2", "LABEL=root")))


def test_a_second_root_partition_gets_the_images_root_and_its_kernel_starts_with_it(tmp_path: Path) -> None:
    image = _card(tmp_path, root="vfat", extlinux=EXTLINUX.replace("rootfstype=ext4", "rootfstype=vfat"))
    process.run(["sfdisk", "--quiet", image], input_bytes=TABLE + SECOND_ROOT, timeout_s=60)
    slot = read_slot(image)
    assert slot.root is not None
    assert (slot.root.root.number, slot.root.second.number, slot.modules) == (2, 4, b"")
    last = slot.entry.decode().splitlines()[-1]
    assert last == f"    APPEND console=ttyS0 root=/dev/mmcblk0p4 rootfstype=vfat fsjoule.slot={slot.name}"
    with image.open("r+b") as file:
        file.seek(5 * MIB)
        file.write(b"another")
    assert read_slot(image).name != slot.name


def test_partitions_have_the_numbers_of_their_table(tmp_path: Path) -> None:
    image = tmp_path / "card7.img"
    with image.open("wb") as file:
        file.truncate(16 * MIB)
    table = b"label: gpt\n1: start=2048,size=8192,bootable\n5: start=10240,size=16384\n"
    process.run(["sfdisk", "--quiet", image], input_bytes=table, timeout_s=60)
    assert [each.number for each in partitions(image)] == [1, 5]


def test_a_damaged_root_writes_nothing_outside(tmp_path: Path) -> None:
    image = _card(tmp_path)
    content = image.read_bytes()
    assert content.count(b"ext4.ko") == 1
    # The name of the module in its folder becomes one that leads elsewhere.
    image.write_bytes(content.replace(b"ext4.ko", b"../evil"))
    with pytest.raises(LabError, match="its root is not a whole ext4"):
        read_slot(image)


def test_the_script_clears_the_flag_before_the_second_kernel_starts(tmp_path: Path) -> None:
    boot = boot_partition(_card(tmp_path))
    assert boot == Partition(1, 2048, 8192, bootable=True)
    assert flag_sector(boot) == 2047
    text = script(boot)[72:].decode()
    assert f"{int.from_bytes(flag()[:4], 'little'):#x}" in text
    parts = ("/second/extlinux.conf\n", "/second/extlinux.scr;", "/extlinux/kept.conf\n", "/extlinux/kept.scr;")
    places = [text.index(part) for part in (" write ", *parts)]
    assert places == sorted(places)
    assert places[0] < text.index("itest.l", places[0]) < places[1]


@pytest.mark.parametrize(("kernel", "command"), [("zImage", "bootz"), ("12ab-Image", "booti"), ("x/uImage", "bootm")])
def test_an_extlinux_conf_becomes_a_script_for_a_u_boot_without_sysboot(kernel: str, command: str) -> None:
    found = as_script(EXTLINUX.replace("zImage", kernel))
    assert found is not None
    load = "load ${devtype} ${devnum}:${distro_bootpart}"
    assert found[72:].decode().splitlines() == [
        "setenv bootargs 'console=ttyS0 root=/dev/mmcblk0p2 rootfstype=ext4'",
        f"{load} ${{kernel_addr_r}} /{kernel}",
        f"{load} ${{fdt_addr_r}} /board.dtb",
        f"{load} ${{ramdisk_addr_r}} /initrd.img",
        f"{command} ${{kernel_addr_r}} ${{ramdisk_addr_r}}:${{filesize}} ${{fdt_addr_r}}",
    ]


@pytest.mark.parametrize(
    ("found", "wrong"), [("zImage", "vmlinuz"), ("    FDT /board.dtb\n", ""), ("root=", "x='a' root=")]
)
def test_an_extlinux_conf_that_a_script_cannot_say_is_left_to_sysboot(found: str, wrong: str) -> None:
    assert as_script(EXTLINUX.replace(found, wrong)) is None
