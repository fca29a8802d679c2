"""The card of a board in guest time that starts its own boot loader: what a power-on adds to it."""

from __future__ import annotations

import hashlib
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from virtual_board import board_config

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.model import MIB
from fsjoule.virtual.board.boot_partition import prepare_card
from fsjoule.virtual.board.config import Boot, GuestTimeConfig
from fsjoule.virtual.board.guest import Guest
from fsjoule.virtual.board.mailbox import SIZE_BYTES

EXTLINUX = """\
DEFAULT fsjoule
LABEL fsjoule
    LINUX /zImage
    INITRD /initrd.img
    FDT /board.dtb
    APPEND console=ttyS0 root=/dev/mmcblk0p2 rw
"""
BOOT_START = 4 * MIB


def flashed(folder: Path, *, extlinux: str = EXTLINUX, table: str = "start=8192, type=e\n", loader: int = MIB) -> Path:
    """A card with a boot loader of `loader` bytes, and a boot partition with a device tree."""
    card, tree = folder / "card.img", folder / "tree"
    with card.open("wb") as file:
        file.truncate(8 * MIB)
    process.run(["sfdisk", "--quiet", card], input_bytes=f"label: dos\n{table}".encode(), timeout_s=30)
    with card.open("r+b") as file:
        file.seek(8192)
        file.write(b"L" * loader)
    partition = f"{card}@@{BOOT_START}"
    process.run(["mformat", "-i", partition, "-T", "8192", "::"], timeout_s=30)
    tree.write_text('/dts-v1/; / { model = "test"; chosen { }; };')
    process.run(["dtc", "-o", folder / "board.dtb", tree], timeout_s=30)
    (folder / "conf").write_text(extlinux)
    process.run(["mmd", "-i", partition, "::extlinux"], timeout_s=30)
    process.run(["mcopy", "-i", partition, folder / "conf", "::extlinux/extlinux.conf"], timeout_s=30)
    process.run(["mcopy", "-i", partition, folder / "board.dtb", "::board.dtb"], timeout_s=30)
    return card


def prepared(flashed: Path, folder: Path, seed: int) -> tuple[int, Path]:
    folder.mkdir()
    card = folder / "powered.img"
    process.run(["cp", flashed, card], timeout_s=30)
    return prepare_card(card, folder, seed), card


def random_words(card: Path, folder: Path) -> list[str]:
    process.run(["mcopy", "-n", "-i", f"{card}@@{BOOT_START}", "::board.dtb", folder / "read.dtb"], timeout_s=30)
    argv = ["fdtget", "-t", "x", folder / "read.dtb", "/chosen", "rng-seed"]
    return process.run(argv, timeout_s=30).stdout.decode().split()


def test_the_mailbox_is_the_last_mib_before_the_first_partition(tmp_path: Path) -> None:
    place, card = prepared(flashed(tmp_path), tmp_path / "power-on", 1)
    assert place == BOOT_START - SIZE_BYTES
    listed = process.run(["sfdisk", "--dump", card], timeout_s=30).stdout.decode()
    assert "powered.img4 : start=        6144, size=        2048, type=da" in listed
    argv = ["mtype", "-i", f"{card}@@{BOOT_START}", "::extlinux/extlinux.conf"]
    told = process.run(argv, timeout_s=30).stdout.decode()
    assert told == EXTLINUX.replace(" rw\n", " rw fsjoule.mailbox=/dev/mmcblk0p4\n")


def test_a_card_depends_on_its_seed_alone(tmp_path: Path) -> None:
    card = flashed(tmp_path)
    digests: list[str] = []
    for name, seed in (("first", 1), ("other", 2)):
        _, powered = prepared(card, tmp_path / name, seed)
        digests.append(hashlib.sha256(powered.read_bytes()).hexdigest())
        assert len(set(random_words(powered, tmp_path / name))) == 8
    time.sleep(2.1)  # FAT knows the time to two seconds
    again = hashlib.sha256(prepared(card, tmp_path / "again", 1)[1].read_bytes()).hexdigest()
    first, other = digests
    assert first == again != other


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"loader": 3 * MIB}, "no room for the mailbox"),
        ({"table": "".join(f"start={start}, size=8\n" for start in (8192, 9000, 9100, 9200))}, "no room for the mail"),
        ({"table": "start=1024, size=8\n", "loader": 0}, "no room for the mailbox"),
        ({"extlinux": EXTLINUX.replace("root=/dev/mmcblk0p2", "")}, "no device tree or no root="),
        ({"extlinux": EXTLINUX.replace("FDT /board.dtb", "")}, "no device tree or no root="),
        ({"extlinux": EXTLINUX.replace("/board.dtb", "/other.dtb")}, "cannot read /other.dtb"),
    ],
)
def test_a_card_that_cannot_be_prepared_is_told(tmp_path: Path, changed: dict[str, object], says: str) -> None:
    card = flashed(tmp_path, **changed)  # type: ignore[arg-type]
    with pytest.raises(LabError, match=says):
        prepare_card(card, tmp_path, 1)


def test_a_boot_loader_that_firmware_starts_gets_the_device_tree_of_the_changed_card(tmp_path: Path) -> None:
    card, partition = flashed(tmp_path), f"{tmp_path / 'card.img'}@@{BOOT_START}"
    files = {
        "bootcode.bin": "",
        "start.elf": "",
        "u-boot.bin": "U",
        "config.txt": "kernel=u-boot.bin\ndevice_tree=board.dtb\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        process.run(["mcopy", "-i", partition, tmp_path / name, f"::{name}"], timeout_s=30)
    own = board_config(tmp_path)
    config = replace(own, qemu=replace(own.qemu, boot=Boot.FIRMWARE))
    with closing(Guest(config, GuestTimeConfig(mailbox=tmp_path / "box"))) as guest:
        (tmp_path / "into").mkdir()
        power_on = guest.power_on(card, tmp_path / "into")
        assert power_on.files is not None
        assert power_on.files.kernel.read_text() == "U"
        assert power_on.files.device_tree is not None
        argv = ["fdtget", "-t", "x", power_on.files.device_tree, "/chosen", "rng-seed"]
        assert process.run(argv, timeout_s=30).stdout.decode().split() == random_words(power_on.card, tmp_path)
        # Typed lines come from this card, and from no second one.
        assert power_on.qemu.mailbox is None
        assert power_on.qemu.environment(3, 4)["FSJOULE_PROBE_MAILBOX_AT"] == str(BOOT_START - SIZE_BYTES)
