"""The type of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fsjoule.model import Provision, Workload

OUR_FILESYSTEMS: Final = ("ext4", "btrfs")  # the default of suites


class StorageChoice(StrEnum):
    CARD = "card"
    FURTHER = "further"  # all but the card, unless there is nothing else
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class Suite:
    """A named list of workloads, or of `parts` that are suites themselves, `name/part`.

    `source` names the publication that it repeats, empty for our own. `filesystems` and `repeat` are defaults;
    `published_repeat` is the publication's number of repetitions. `provision` is set if only one way works. `remarks`
    are for readers of its figures. `raw` measures the devices without a filesystem. `depths` are queue depths by name
    of storage device that replace the workload's own. `file` is the user's file that it is from; `scales` says that its
    sizes are multiplied by a board's factor, as those of a publication are. `contents` are the files that its commands
    need, by their SHA-256.
    """

    name: str
    title: str
    workloads: tuple[Workload, ...] = ()
    source: str = ""
    filesystems: tuple[str, ...] = OUR_FILESYSTEMS
    repeat: int = 3
    published_repeat: int = 1
    provision: Provision | None = None
    parts: tuple[Suite, ...] = ()
    remarks: tuple[str, ...] = ()
    where: StorageChoice = StorageChoice.CARD
    raw: bool = False
    depths: Mapping[str, int] = field(default_factory=dict[str, int])
    file: str = ""
    scales: bool = False
    contents: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def scaled(self) -> bool:
        return self.scales or bool(self.source)

    @property
    def leaves(self) -> tuple[Suite, ...]:
        """The parts, or the suite itself if it has none."""
        return self.parts or (self,)
