"""A card that was written by hand and stays in the board: nothing is needed beside it but a switched outlet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.lab.flashers import FlashedBoard, FlasherProtocol
from fsjoule.model import Reach

_TIMEOUT_S: Final = 30.0
_SECTOR_BYTES: Final = 512
_BOOTABLE: Final = "LegacyBIOSBootable"


@target_factory.reg_driver
@attr.s(eq=False)
class KeptCard(Driver, FlasherProtocol):
    """Leaves the card as it is, and looks whether it is the run's: one kernel, one root filesystem.

    Filesystems on the scratch partition are made by the board itself, as always.
    """

    reach = Reach.SCRATCH

    def flash(self, image: Path, board: FlashedBoard) -> None:
        """See FlasherProtocol. There is nothing to do before the board has booted."""

    def check_booted(self, image: Path, card_device: str, run: Callable[[str], Sequence[str]]) -> None:
        """Compare the boot partition: kernel, device tree, command line. The root changes with every boot."""
        number, start, size_bytes = boot_partition(image)
        device = f"/dev/{card_device}{'p' if card_device[-1].isdigit() else ''}{number}"
        wanted = hashlib.sha256()
        with image.open("rb") as file:
            file.seek(start)
            wanted.update(file.read(size_bytes))
        said = run(f"busybox sha256sum {device}")
        if not said or said[0].split()[0] != wanted.hexdigest():
            block_map = image.with_name(f"{image.name}.bmap")
            raise LabError(
                f"the card in the board is not the run's: {device} differs from the boot partition of {image}",
                hint=f"write the card by hand: bmaptool copy --bmap {block_map} {image} /dev/CARD",
            )


def boot_partition(image: Path) -> tuple[int, int, int]:
    """Number, first byte and size in bytes of an image's boot partition. Raises LabError without one."""
    table = json.loads(process.run(["sfdisk", "--json", image], timeout_s=_TIMEOUT_S).stdout)["partitiontable"]
    for number, each in enumerate(table["partitions"], start=1):
        if each.get("bootable") or _BOOTABLE in each.get("attrs", ""):
            return number, each["start"] * _SECTOR_BYTES, each["size"] * _SECTOR_BYTES
    raise LabError(f"the card image {image} has no boot partition")
