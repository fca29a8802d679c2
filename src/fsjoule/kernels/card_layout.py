"""The card as a recipe describes it: partitions, and a boot loader's files between, in or before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from fsjoule.model import MIB

SECTOR_BYTES: Final = 512

# A GPT: a protective MBR, a header and 128 entries of 128 bytes; header and entries again at the end of the card.
_GPT_SECTORS: Final = 34

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")]
Mebibytes = Annotated[int, Field(gt=0, le=65536)]
Sector = Annotated[int, Field(gt=0, lt=2**32)]
Header = Literal["allwinner", "imx", "omap", "rockchip", "stm32", "uimage", "fit"]
Address = Literal["kernel_addr_r", "fdt_addr_r", "ramdisk_addr_r"]


FROZEN: Final = ConfigDict(frozen=True, extra="forbid", strict=False)


class _LayoutTable(BaseModel):
    model_config = FROZEN


class LoaderPiece(_LayoutTable):
    """One file of a boot loader and its place on the card.

    `file` is a member of the Debian `package`; without one (or with an empty one, where the base has one) the user's,
    beside the recipe, below the recipes' folder or anywhere.
    It goes to `sector` of the card, or onto the boot partition as `boot_file`. `partition` names a GPT partition of
    `size_kib` that begins at the sector. `header` is the kind of loader that the board starts from there.
    """

    file: Annotated[str, StringConstraints(pattern=r"^\S+$")]
    package: Name | Literal[""] | None = None
    sector: Sector | None = None
    partition: Name | None = None
    size_kib: Annotated[int | None, Field(gt=0)] = None
    boot_file: Annotated[str | None, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] = None
    header: Header | None = None

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if (self.sector is None) is (self.boot_file is None):
            raise ValueError("a piece of a boot loader has one place: sector, or boot_file")
        if (self.partition is None) is not (self.size_kib is None) or (self.partition and self.sector is None):
            raise ValueError("a partition of a boot loader has a name (partition), a sector and a size_kib")
        return self

    @property
    def partition_sectors(self) -> int | None:
        return None if self.size_kib is None else self.size_kib * 1024 // SECTOR_BYTES


class BootLoader(_LayoutTable):
    """The boot loader: its files, from packages of `suite` (without one: of the user land's), or none of them.

    `keep_sectors` (first and last) belong to a loader that somebody else has put there: flashing leaves them alone.
    `addresses` are the loader's, for a loader whose files do not tell them. `script` asks for boot.scr, for a U-Boot
    without extlinux.conf: its name of the boot partition, `mmc 0:1`.
    """

    suite: Name | None = None
    components: Annotated[tuple[Name, ...], Field(min_length=1)] = ("main",)
    pieces: dict[Name, LoaderPiece] = {}
    keep_sectors: tuple[Sector, Sector] | None = None
    addresses: dict[Address, Annotated[int, Field(ge=0, lt=2**64)]] = {}
    script: Annotated[str, StringConstraints(pattern=r"^[\w${}:. ]*$")] = ""

    @model_validator(mode="after")
    def _keeps_a_range(self) -> Self:
        if self.keep_sectors and self.keep_sectors[0] > self.keep_sectors[1]:
            raise ValueError("keep_sectors are the first and the last sector")
        return self

    @property
    def partitions(self) -> list[LoaderPiece]:
        """The pieces with a partition of their own, in the order of the table."""
        return [piece for piece in self.pieces.values() if piece.partition]


class CardLayout(_LayoutTable):
    """Three partitions: boot (FAT), root, and scratch in the remaining space. Sizes in MiB. `table` is their kind.

    In a GPT the boot loader's partitions come before them. A `second_root` of the root's size comes behind them, for
    root filesystems that are brought in place; it is empty in an image.
    """

    size_mib: Mebibytes
    align_mib: Mebibytes
    boot_mib: Mebibytes
    root_mib: Mebibytes
    table: Literal["dos", "gpt"] = "dos"
    second_root: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.size_mib & (self.size_mib - 1):
            raise ValueError(f"size_mib = {self.size_mib} is not a power of two, as QEMU's card requires")
        if self.scratch_mib < self.align_mib:
            raise ValueError(f"boot and root leave no room for the scratch partition on a card of {self.size_mib} MiB")
        return self

    @property
    def boot_start_mib(self) -> int:
        return self.align_mib

    @property
    def root_start_mib(self) -> int:
        return self.boot_start_mib + self.boot_mib

    @property
    def scratch_start_mib(self) -> int:
        return self.root_start_mib + self.root_mib

    @property
    def scratch_mib(self) -> int:
        """Space for scratch; the last whole MiB of a GPT's card holds the table's copy."""
        behind = (self.root_mib if self.second_root else 0) + (1 if self.table == "gpt" else 0)
        return self.size_mib - self.scratch_start_mib - behind

    @property
    def places_mib(self) -> dict[str, tuple[int, int]]:
        """Start and size of each partition of the card's own, by name, in their order."""
        places = {
            "boot": (self.boot_start_mib, self.boot_mib),
            "root": (self.root_start_mib, self.root_mib),
            "scratch": (self.scratch_start_mib, self.scratch_mib),
        }
        if self.second_root:
            places["second root"] = (self.scratch_start_mib + self.scratch_mib, self.root_mib)
        return places

    @property
    def table_sectors(self) -> int:
        return _GPT_SECTORS if self.table == "gpt" else 1


@dataclass(frozen=True, slots=True)
class Region:
    """Sectors of the card that something takes; `last` is the last of them."""

    name: str
    first: int
    last: int

    def __str__(self) -> str:
        sectors = f"sector {self.first}" if self.first == self.last else f"sectors {self.first} to {self.last}"
        return f"{self.name} ({sectors})"


def regions(card: CardLayout, loader: BootLoader, sizes: Mapping[str, int]) -> list[Region]:
    """Everything on a card that has a place of its own. `sizes` are bytes of the loader's pieces, as far as known."""
    per_mib = MIB // SECTOR_BYTES
    areas = [Region("the partition table", 0, card.table_sectors - 1)]
    areas += [
        Region(f"the partition {name}", start * per_mib, (start + size) * per_mib - 1)
        for name, (start, size) in card.places_mib.items()
    ]
    for name, piece in loader.pieces.items():
        if piece.sector is not None:
            sectors = piece.partition_sectors or max(1, -(-sizes.get(name, 0) // SECTOR_BYTES))
            areas.append(Region(f"the boot loader's {name}", piece.sector, piece.sector + sectors - 1))
    if loader.keep_sectors:
        areas.append(Region("keep_sectors", *loader.keep_sectors))
    return sorted(areas, key=lambda region: region.first)


def overlap(card: CardLayout, loader: BootLoader, sizes: Mapping[str, int]) -> str | None:
    """The first two things that want the same sectors, or the first one outside the card, in words; None if none."""
    placed, end = regions(card, loader, sizes), card.size_mib * MIB // SECTOR_BYTES
    for number, region in enumerate(placed):
        for other in placed[number + 1 :]:
            if other.first <= region.last:
                return f"{other} overlaps {region}"
        if region.last >= end:
            return f"{region} is behind the end of the card, which has {end} sectors"
    return None
