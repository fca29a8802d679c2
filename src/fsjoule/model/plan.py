"""The order of workloads, their places, and the figures that may be compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fsjoule.model.filesystem import file_name, titled
from fsjoule.model.layer import of_series
from fsjoule.model.operation import StateKind, TimedKind
from fsjoule.model.workload import FioWorkload, Workload

# The name of a board's first storage device, from which it boots.
CARD: Final = "card"


class Provision(StrEnum):
    """How the filesystem under test gets onto the board."""

    ROOT = "root"  # a card image whose root partition has it
    SCRATCH = "scratch"  # made fresh on the scratch partition before every measurement


@dataclass(frozen=True, slots=True)
class Planned:
    """One entry of a plan. `number` is its place in the randomised order, from 1.

    `kernel` is the label of one of the plan's kernels, `suite` the suite or part (`elc2015/boot`) that contains it,
    `provision` how its filesystem gets onto the board, `storage` the board's name for its storage device, with its
    setting, if any, and the layers above it: `card+dm-crypt`, `card:nocache`.
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
        """Short name, unique within a repetition on one kernel: `ext4-read-16k`, `ext4-read-16k-card+dm-crypt`."""
        where = "" if self.storage == CARD else f"-{file_name(self.storage)}"
        return f"{file_name(self.filesystem)}-{self.workload.slug}{where}"

    @property
    def files_read(self) -> tuple[object, ...] | None:
        """Entries of one key may read the same files, but for their size; None for one that does more than read."""
        if isinstance(self.workload, FioWorkload) and self.workload.only_reads:
            return self.filesystem, self.storage, self.provision, *self.workload.files_key
        return None

    @property
    def on_root(self) -> bool:
        """Whether the board boots from its filesystem, which is made with the card and not on the board."""
        return self.provision is Provision.ROOT or self.workload.is_boot


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Measurements with equal keys may be compared; they differ only in kernel, time and repetition.

    `filesystem` says what it is, with its options: `ext4:commit=60`. `title` is the user's name for it, if any: two
    names for the same options are one series, and one name for two sets of options are two.
    """

    suite: str
    board: str
    storage: str
    filesystem: str
    make_options: tuple[str, ...]
    mount_options: tuple[str, ...]
    provision: Provision
    workload: str
    title: str = field(default="", compare=False)

    @property
    def device(self) -> str:
        """The storage device without the layers above it."""
        return of_series(self.storage)[0]

    @property
    def stack(self) -> str:
        """The layers above the storage device; empty without."""
        return of_series(self.storage)[1]

    @property
    def filesystem_title(self) -> str:
        """The filesystem's name in tables."""
        return self.title or self.filesystem

    def has_filesystem(self, name: str) -> bool:
        """Whether its filesystem is the one of this name: `ext4:commit=60`, `mine=ext4:commit=60`, `mine`."""
        title, content = titled(name)
        return content == self.filesystem or (not title and content == self.title)

    @property
    def on_root(self) -> bool:
        """Whether its filesystem is the card's root, whose options are the card's."""
        booted = self.workload == TimedKind.BOOT or self.workload.startswith(TimedKind.POWER_ON)
        return self.provision is Provision.ROOT or booted

    @property
    def is_optional(self) -> bool:
        """Whether a board need not have it: a segment of a boot from power-on, or a state."""
        return self.workload.startswith((f"{TimedKind.POWER_ON}-", f"{StateKind.STATE}-"))


@dataclass(frozen=True, slots=True)
class Plan:
    """The user's request, and the order from the seed.

    A filesystem of the user's own has its title and its options in its name: `mine=ext4:commit=60`.
    `size_factors` multiply the sizes of published suites or parts; `left_out` tells which parts of a suite are not
    measured, and why; `adjusted` tells what is measured differently from the suite. With `until_decided` repetitions
    go on until each statement about two filesystems is decided: `repeat` is the most that there may be, and once the
    run is complete what there was. `files` are what commands of the user's need on the board, by SHA-256: gzip, base64.
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
    until_decided: bool = False
    files: dict[str, str] = field(default_factory=dict[str, str])

    def test_id(self, entry: Planned) -> str:
        """The entry's name in pytest: `07-r1-ext4-write-16k`; with several kernels `07-r1-6.1-ext4-write-16k`."""
        kernel = f"{entry.kernel}-" if len(self.kernels) > 1 else ""
        return f"{entry.number:02d}-r{entry.repetition}-{kernel}{entry.slug}"

    def files_bytes(self, entry: Planned, workload: FioWorkload) -> int:
        """The size of the files that a job needs, or that of larger ones which it may share with others that read."""
        shared = (
            each.workload.size_bytes
            for each in self.entries
            if isinstance(each.workload, FioWorkload) and each.files_read and each.files_read == entry.files_read
        )
        return max(filter(workload.reads_files_of, shared), default=workload.size_bytes)
