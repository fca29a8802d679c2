"""What a suite is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fsjoule.model import Provision, Workload

# What ours are measured on if nobody says.
_FILESYSTEMS = ("ext4", "btrfs")


class Where(StrEnum):
    """On which of a board's storage devices a suite measures, if the user names none."""

    CARD = "card"
    FURTHER = "further"  # all but the card, unless there is nothing else
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class Suite:
    """A named list of workloads, or of `parts` that are suites themselves, `name/part`.

    `source` names the publication that it repeats, empty for our own. `filesystems` and `repeat` hold if the user names
    none; `published_repeat` is how often the publication repeated it. `provision` is for what can only be measured one
    way. `remarks` are for the reader of its figures. With `raw` there is no filesystem: it measures the devices
    themselves. `depths` are queue depths on storage devices of that name, instead of the workload's own.
    """

    name: str
    title: str
    workloads: tuple[Workload, ...] = ()
    source: str = ""
    filesystems: tuple[str, ...] = _FILESYSTEMS
    repeat: int = 3
    published_repeat: int = 1
    provision: Provision | None = None
    parts: tuple[Suite, ...] = ()
    remarks: tuple[str, ...] = ()
    where: Where = Where.CARD
    raw: bool = False
    depths: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def leaves(self) -> tuple[Suite, ...]:
        """The parts, or the suite itself if it has none."""
        return self.parts or (self,)
