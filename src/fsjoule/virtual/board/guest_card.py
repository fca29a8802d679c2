"""Additions on the card of a board in guest time that starts its own boot loader: the mailbox, and random numbers.

The boot loader reads command line and device tree from the card, and its machine may have one slot only. So the mailbox
is a partition of this card: the last MiB before the first partition, whose reads the probe answers.
"""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.virtual.board import boot_partition
from fsjoule.virtual.board.boot_partition import SECTOR_BYTES
from fsjoule.virtual.board.guest_boot import set_seed
from fsjoule.virtual.board.mailbox import SIZE_BYTES

_NUMBER: Final = 4
_ENTRY_OFFSET: Final = 446 + 16 * (_NUMBER - 1)
# Type at 4, first sector at 8, sectors at 12. Type 0xda is data without a filesystem.
_ENTRY: Final = struct.Struct("<4xB3xII")
_DATA: Final = 0xDA
_APPEND: Final = re.compile(r"^(\s*append\s.*?\broot=(\S*?)\d+(?:\s.*)?)$", re.IGNORECASE | re.MULTILINE)


def prepare(card: Path, into: Path, seed: int) -> int:
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
    changed, entries = _APPEND.subn(rf"\1 fsjoule.mailbox=\g<2>{_NUMBER}", text)
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
        file.write(_ENTRY.pack(_DATA, place // SECTOR_BYTES, SIZE_BYTES // SECTOR_BYTES))
    return place
