from __future__ import annotations

from pathlib import Path

import pytest

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.kernels.recipe import recipes_folder
from fsjoule.virtual.board.boot_partition import (
    BootEntry,
    BootFiles,
    first_partition_offset,
    load,
    load_by_firmware,
    parse_config_txt,
    parse_extlinux,
)


def mbr(*, kind: int = 0x0C, start: int = 2048, sectors: int = 131072) -> bytes:
    entry = bytes([0x80, 0, 0, 0, kind, 0, 0, 0]) + start.to_bytes(4, "little") + sectors.to_bytes(4, "little")
    return bytes(446) + entry + bytes(48) + b"\x55\xaa"


def test_the_first_partition_is_found() -> None:
    assert first_partition_offset(mbr()) == 1024 * 1024


@pytest.mark.parametrize(
    ("sector", "says"),
    [
        (bytes(512), "no partition table"),
        (b"", "no partition table"),
        (mbr(kind=0), "no first partition"),
        (mbr(sectors=0), "no first partition"),
    ],
)
def test_a_card_without_one_is_told(sector: bytes, says: str) -> None:
    with pytest.raises(LabError, match=says):
        first_partition_offset(sector)


def test_extlinux_gives_the_first_entry() -> None:
    text = """
    default fsjoule
    label fsjoule
        linux /zImage
        INITRD   /initrd.img
        FDT /board.dtb
        APPEND console=ttymxc0,115200 root=/dev/mmcblk1p2  rw
    label other
        LINUX /other
    """
    assert parse_extlinux(text) == BootEntry(
        "/zImage", "/initrd.img", "/board.dtb", "console=ttymxc0,115200 root=/dev/mmcblk1p2  rw"
    )


def test_an_incomplete_entry_says_what_it_lacks() -> None:
    with pytest.raises(LabError, match="no LINUX and no INITRD"):
        parse_extlinux("FDT /board.dtb\n")


def test_a_device_tree_is_not_for_every_board() -> None:
    entry = parse_extlinux("LINUX /vmlinux\nINITRD /initrd.img\nAPPEND console=ttyS0\n")
    assert entry == BootEntry("/vmlinux", "/initrd.img", None, "console=ttyS0")


def test_a_partition_without_a_filesystem_is_told(tmp_path: Path) -> None:
    image = tmp_path / "card.img"
    image.write_bytes(mbr().ljust(4 * 1024 * 1024, b"\0"))
    with pytest.raises(LabError, match=r"cannot read /extlinux/extlinux\.conf from"):
        load(image, tmp_path)


# ---------------------------------------------------------------------------------------------- Raspberry Pi's firmware

CONFIG_TXT = (recipes_folder() / "boards" / "rpi-config.txt").read_text()


def raspberry_pi_card(folder: Path, **files: str) -> Path:
    """A card whose boot partition has these files, by their names with `_` for the dot."""
    image, start = folder / "card.img", 1024 * 1024
    image.write_bytes(mbr().ljust(start + 4 * 1024 * 1024, b"\0"))
    process.run(["mkfs.vfat", "--offset", str(start // 512), image], timeout_s=30)
    for name, text in files.items():
        (folder / name).write_text(text)
        process.run(["mcopy", "-i", f"{image}@@{start}", folder / name, f"::{name.replace('_', '.')}"], timeout_s=30)
    return image


PI = {"bootcode_bin": "b", "start_elf": "s", "config_txt": CONFIG_TXT, "u-boot_bin": "U-Boot", "board_dtb": "tree"}


def test_the_firmware_starts_the_boot_loader_that_config_txt_names(tmp_path: Path) -> None:
    image, into = raspberry_pi_card(tmp_path, **PI), tmp_path / "into"
    into.mkdir()
    files = load_by_firmware(image, into)
    assert files == BootFiles(into / "kernel", None, into / "board.dtb", "")
    assert (files.kernel.read_text(), (into / "board.dtb").read_text()) == ("U-Boot", "tree")


@pytest.mark.parametrize("lacking", PI)
def test_a_card_on_which_the_firmware_lacks_a_file_is_told(lacking: str, tmp_path: Path) -> None:
    image = raspberry_pi_card(tmp_path, **{name: text for name, text in PI.items() if name != lacking})
    with pytest.raises(LabError, match=rf"cannot read /{lacking.replace('_', '.')} from the card's boot partition"):
        load_by_firmware(image, tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kernel=u-boot.bin\n", "config.txt on the card has no device_tree"),
        ("# kernel=u-boot.bin\ndevice_tree=\n", "has no kernel and no device_tree"),
        (f"{CONFIG_TXT}[pi4]\nkernel=other.bin\n", r"has \[pi4\]: the emulated firmware knows lines for all boards"),
    ],
)
def test_a_config_txt_that_does_not_say_what_to_start_is_told(text: str, says: str) -> None:
    with pytest.raises(LabError, match=says):
        parse_config_txt(text)


def test_the_last_line_of_config_txt_wins() -> None:
    assert parse_config_txt(f"{CONFIG_TXT}[all]\n kernel=other.bin \n") == ("other.bin", "board.dtb")
