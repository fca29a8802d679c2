"""Additions for the boot of a board in guest time: the mailbox, and random numbers.

The emulated boot loader adds them to the boot files (`for_guest_time`). A boot loader of the board's own reads command
line and device tree from the card, and its machine may have one slot only. So the mailbox is a partition of this card:
the last MiB before the first partition, whose reads the probe answers (`prepare_card`).
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.virtual.board import boot_partition
from fsjoule.virtual.board.boot_partition import SECTOR_BYTES, BootFiles
from fsjoule.virtual.board.mailbox import SIZE_BYTES

# The card slot that the emulated board leaves empty: index 0 of QEMU's SD cards, which Linux calls mmcblk0.
MAILBOX_INDEX: Final = 0
MAILBOX_DEVICE: Final = "/dev/mmcblk0"
_ALIAS: Final = "mmc0"
# With these Linux would see an empty slot and wait for its supply.
_REMOVED: Final = ("cd-gpios", "vmmc-supply")
_SEED_DIGITS: Final = 64
_TIMEOUT_S: Final = 30.0
_PARTITION_NUMBER: Final = 4
_ENTRY_OFFSET: Final = 446 + 16 * (_PARTITION_NUMBER - 1)
# Type at 4, first sector at 8, sectors at 12. Type 0xda is data without a filesystem.
_ENTRY: Final = struct.Struct("<4xB3xII")
_DATA_TYPE: Final = 0xDA
_APPEND: Final = re.compile(r"^(\s*append\s.*?\broot=(\S*?)\d+(?:\s.*)?)$", re.IGNORECASE | re.MULTILINE)


def for_guest_time(files: BootFiles) -> BootFiles:
    """The same files, with a card in the other slot of the device tree and on the command line for the login.

    The tree gets space for the seed of the kernel's random numbers, which QEMU fills from its `-seed`. Raises LabError
    if the device tree does not belong to a board with two slots.
    """
    tree = files.device_tree
    if tree is None:
        raise LabError("the card boots without a device tree, which a board in guest time needs for its mailbox")
    node = _run("fdtget", tree, "/aliases", _ALIAS).strip()
    present = _run("fdtget", "-p", tree, node).split()
    for name in _REMOVED:
        if name in present:
            _run("fdtput", "-d", tree, node, name)
    _run("fdtput", tree, node, "non-removable")
    set_seed(tree, "0" * _SEED_DIGITS)
    return replace(files, command_line=f"{files.command_line} fsjoule.mailbox={MAILBOX_DEVICE}")


def set_seed(tree: Path, digits: str) -> None:
    """Put the seed of the kernel's random numbers into a device tree, as 64 hexadecimal digits. Raises LabError."""
    words = [digits[at : at + 8].lstrip("0") or "0" for at in range(0, _SEED_DIGITS, 8)]
    _run("fdtput", "-t", "x", tree, "/chosen", "rng-seed", *words)


def _run(*argv: str | Path) -> str:
    return process.run(argv, timeout_s=_TIMEOUT_S).stdout.decode()


def prepare_card(card: Path, into: Path, seed: int) -> int:
    """Add mailbox and seed to the card of this power-on, by files in the folder `into`.

    Returns the mailbox's place on the card in bytes. Raises LabError if the card has no room for it, or does not boot
    by extlinux.conf with a device tree.
    """
    place = _add_partition(card)
    partition = boot_partition.first_partition(card)
    configuration = into / "extlinux.conf"
    boot_partition.copy_out(partition, boot_partition.EXTLINUX, configuration)
    text = configuration.read_text(errors="replace")
    tree = boot_partition.parse_extlinux(text).device_tree
    changed, entries = _APPEND.subn(rf"\1 fsjoule.mailbox=\g<2>{_PARTITION_NUMBER}", text)
    if tree is None or not entries:
        raise LabError("the card's extlinux.conf has no device tree or no root=, which a board in guest time needs")
    configuration.write_text(changed)
    boot_partition.copy_in(partition, configuration, boot_partition.EXTLINUX)
    copy = into / "board.dtb"
    boot_partition.copy_out(partition, tree, copy)
    set_seed(copy, hashlib.sha256(f"{seed}".encode()).hexdigest())
    boot_partition.copy_in(partition, copy, tree)
    return place


def _add_partition(card: Path) -> int:
    with card.open("r+b") as file:
        place = boot_partition.first_partition_offset(file.read(SECTOR_BYTES)) - SIZE_BYTES
        file.seek(_ENTRY_OFFSET)
        taken = any(file.read(_ENTRY.size))
        file.seek(max(place, 0))
        if taken or place < SECTOR_BYTES or any(file.read(SIZE_BYTES)):
            hint = "leave the MiB before the card's first partition and the table's fourth entry free"
            raise LabError("the card has no room for the mailbox of a board in guest time", hint=hint)
        file.seek(_ENTRY_OFFSET)
        file.write(_ENTRY.pack(_DATA_TYPE, place // SECTOR_BYTES, SIZE_BYTES // SECTOR_BYTES))
    return place
