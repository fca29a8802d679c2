"""The order in which workloads are done, where each is done, and which of their figures may be compared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fsjoule.model.operation import TimedKind
from fsjoule.model.workload import Workload

# What a board's first storage device is called, the one that it boots from.
CARD: Final = "card"


class Provision(StrEnum):
    """How the filesystem under test gets onto the board."""

    ROOT = "root"  # a card image whose root partition has it
    SCRATCH = "scratch"  # made fresh on the scratch partition before every measurement


@dataclass(frozen=True, slots=True)
class Planned:
    """One entry of a plan. `number` is its place in the randomised order, counted from 1.

    `kernel` is the label of one of the plan's kernels, `suite` the suite or the part of one (`elc2015/boot`) that wants
    it, `provision` how its filesystem gets onto the board, `storage` the board's name for the device that it is on.
    """

    number: int
    repetition: int
    kernel: str
    filesystem: str
    workload: Workload
    suite: str
    provision: Provision
    storage: str = CARD

    @property
    def slug(self) -> str:
        """Short name, unique within a repetition on one kernel: `ext4-read-16k`, `ext4-read-16k-nvme`."""
        where = "" if self.storage == CARD else f"-{self.storage}"
        return f"{self.filesystem.replace(':', '.')}-{self.workload.slug}{where}"

    @property
    def on_root(self) -> bool:
        """Whether its filesystem is the one that the board boots from, made with the card and not on the board."""
        return self.provision is Provision.ROOT or self.workload.is_boot


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Measurements with equal keys may be compared; they differ in kernel, time and repetition only."""

    suite: str
    board: str
    storage: str
    filesystem: str
    make_options: tuple[str, ...]
    mount_options: tuple[str, ...]
    provision: Provision
    workload: str

    @property
    def on_root(self) -> bool:
        """Whether its filesystem is the card's root, whose options are the card's."""
        return self.provision is Provision.ROOT or self.workload == TimedKind.BOOT


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for, and the order that the seed gave.

    `size_factors` is what the sizes of published suites, or their parts, were multiplied by; `left_out` says what a
    suite has that is not measured, and why; `adjusted` what is measured otherwise than the suite says.
    """

    suite: str
    filesystems: tuple[str, ...]
    kernels: tuple[str, ...]
    repeat: int
    seed: int
    size_factors: dict[str, float]
    entries: tuple[Planned, ...]
    left_out: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()

    def test_id(self, entry: Planned) -> str:
        """What pytest calls an entry: `07-r1-ext4-write-16k`, or with several kernels `07-r1-6.1-ext4-write-16k`."""
        kernel = f"{entry.kernel}-" if len(self.kernels) > 1 else ""
        return f"{entry.number:02d}-r{entry.repetition}-{kernel}{entry.slug}"
