"""The partition table of a card, as text for sfdisk."""

from __future__ import annotations

from typing import Final
from uuid import NAMESPACE_DNS, UUID, uuid5

from fsjoule.kernels.card_layout import SECTOR_BYTES
from fsjoule.kernels.recipe import Recipe
from fsjoule.model import MIB

_DISK_ID: Final = "0x66736a6c"
# Fixed, so that equal recipes give equal tables.
_CARD: Final = uuid5(NAMESPACE_DNS, "card.fsjoule.invalid")
_FAT: Final = UUID("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7")
_LINUX: Final = UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
_PER_MIB: Final = MIB // SECTOR_BYTES


def is_of_a_card(dos_id: bytes, gpt_id: bytes) -> bool:
    """Whether a disk with these bytes at 440 (4 of them) and at 568 (16) has the table of one of our cards."""
    return dos_id == int(_DISK_ID, 16).to_bytes(4, "little") or gpt_id == _CARD.bytes_le


def partition_table(recipe: Recipe) -> str:
    """Partitions boot, root, scratch and perhaps a second root; in a GPT behind those of the boot loader."""
    card = recipe.card
    places = {
        name: f"start={start * _PER_MIB}, size={size * _PER_MIB}" for name, (start, size) in card.places_mib.items()
    }
    boot = places.pop("boot")
    if card.table == "dos":
        others = "".join(f"{place}, type=83\n" for place in places.values())
        return f"label: dos\nlabel-id: {_DISK_ID}\nunit: sectors\n{boot}, type=e, bootable\n{others}"
    lines = [
        f"start={piece.sector}, size={piece.partition_sectors}, type={_LINUX}, {_named(piece.partition)}"
        for piece in recipe.boot_loader.partitions
    ]
    lines.append(f'{boot}, type={_FAT}, attrs="LegacyBIOSBootable", {_named("boot")}')
    lines += [f"{place}, type={_LINUX}, {_named(name)}" for name, place in places.items()]
    header = f"label: gpt\nlabel-id: {_CARD}\nunit: sectors\nfirst-lba: {card.table_sectors}\n"
    return header + "".join(f"{line}\n" for line in lines)


def _named(name: str | None) -> str:
    return f'name="{name}", uuid={uuid5(_CARD, str(name))}'
