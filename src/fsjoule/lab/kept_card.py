"""A card that was written by hand and stays in the board: nothing is needed beside it but a switched outlet."""

from __future__ import annotations

import hashlib
import json
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.lab.flashers import FlashedBoard, FlasherProtocol
from fsjoule.model import Reach
from fsjoule.ports import Shell

_TIMEOUT_S: Final = 30.0
_READ_TIMEOUT_S: Final = 300.0
_BOOTABLE: Final = "LegacyBIOSBootable"


@target_factory.reg_driver
@attr.s(eq=False)
class KeptCard(Driver, FlasherProtocol):
    """Leaves the card as it is, and looks whether it is the run's: one kernel, one root filesystem.

    Filesystems on the scratch partition are made by the board itself, as always.
    """

    reach = Reach.SCRATCH
    without_mux = "the card stays in the board as it is"
    _unseen = False

    def flash(self, image: Path, board: FlashedBoard) -> None:  # noqa: ARG002
        """See FlasherProtocol. There is nothing to do before the board has booted."""
        self._unseen = True

    def check_booted(self, image: Path, board: FlashedBoard, shell: Shell) -> None:
        """Compare the boot partition: kernel, device tree, command line. The root changes with every boot."""
        if not self._unseen:
            return
        boot = boot_partition(image)
        device = partition_device(board.card_device, boot.number)
        wanted = hashlib.sha256()
        with image.open("rb") as file:
            file.seek(boot.start * boot.sector_bytes)
            wanted.update(file.read(boot.size * boot.sector_bytes))
        said = shell.run(["busybox", "sha256sum", device], timeout_s=_READ_TIMEOUT_S).stdout
        if said.split()[:1] != [wanted.hexdigest()]:
            block_map = image.with_name(f"{image.name}.bmap")
            raise LabError(
                f"the card in the board is not the run's: {device} differs from the boot partition of {image}",
                hint=f"write the card by hand: bmaptool copy --bmap {block_map} {image} /dev/CARD",
            )
        self._unseen = False


def partition_device(card_device: str, number: int) -> str:
    """The board's path of a partition of its card."""
    return f"/dev/{card_device}{'p' if card_device[-1].isdigit() else ''}{number}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a card image: its number, from 1, and its place in sectors."""

    number: int
    start: int
    size: int
    bootable: bool
    sector_bytes: int = 512


def partitions(image: Path) -> tuple[Partition, ...]:
    """The partitions of a card image. Raises LabError without a partition table."""
    table = json.loads(process.run(["sfdisk", "--json", image], timeout_s=_TIMEOUT_S).stdout)["partitiontable"]
    return tuple(
        Partition(
            int(each["node"][len(each["node"].rstrip(string.digits)) :]),
            each["start"],
            each["size"],
            each.get("bootable") or _BOOTABLE in each.get("attrs", ""),
        )
        for each in table["partitions"]
    )


def boot_partition(image: Path) -> Partition:
    """An image's boot partition. Raises LabError without one."""
    for each in partitions(image):
        if each.bootable:
            return each
    raise LabError(f"the card image {image} has no boot partition")
