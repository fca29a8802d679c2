from __future__ import annotations

from pathlib import Path

import pytest

from fsjoule.errors import LabError
from fsjoule.virtual.board.boot_partition import BootEntry, first_partition_offset, load, parse_extlinux


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
