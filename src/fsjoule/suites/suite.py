"""What a suite is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fsjoule.model import (
    KIB,
    FioWorkload,
    FlakeyWorkload,
    PowerLossWorkload,
    Provision,
    TimedKind,
    TimedWorkload,
    Workload,
)

# What ours are measured on if nobody says.
_FILESYSTEMS = ("ext4", "btrfs")
_FEWEST_BLOCKS = 16
_SHORTEST_S = 3.0
# What small boards write and sync of files of up to 256 KiB: seen were 5 to 8.
_FILES_PER_S = 10


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


def scaled(workload: Workload, factor: float) -> Workload:
    """The workload with its sizes and its time multiplied, in whole blocks, 16 of them at least if it has as many.

    Of several files there are fewer, each as large as before; if they have less than 16 blocks they are gone through
    again, until as many have been moved. No time gets shorter than 3 s.
    """
    if isinstance(workload, PowerLossWorkload):
        return workload  # its files are small, and written for a time
    if not isinstance(workload, FioWorkload):
        return replace(workload, size_bytes=round(workload.size_bytes * factor / KIB) * KIB)
    block = workload.block_size_bytes
    if workload.files > 1:
        files, each = max(1, round(workload.files * factor)), workload.size_bytes // workload.files
        again = files * (each // block) < _FEWEST_BLOCKS <= workload.files * (each // block)
        moved_bytes = _FEWEST_BLOCKS * block if again else workload.io_bytes
        return replace(workload, files=files, size_bytes=files * each, io_bytes=moved_bytes)
    fewest = _FEWEST_BLOCKS if workload.size_bytes >= _FEWEST_BLOCKS * block else 1
    blocks = max(fewest, round(workload.size_bytes * factor / block))
    moved = max(blocks, round(workload.io_bytes * factor / block)) if workload.io_bytes else 0
    runtime_s = max(_SHORTEST_S, round(workload.runtime_s * factor)) if workload.runtime_s else 0.0
    return replace(workload, size_bytes=blocks * block, io_bytes=moved * block, runtime_s=runtime_s)


def space_bytes(workload: Workload) -> int:
    """What a workload puts onto the filesystem; 0 for one that fills a share of it."""
    if isinstance(workload, FlakeyWorkload):
        return workload.size_bytes + workload.files * workload.file_bytes
    if isinstance(workload, PowerLossWorkload):
        return round(workload.latest_s * _FILES_PER_S) * workload.size_bytes
    return workload.size_bytes * (workload.jobs if isinstance(workload, FioWorkload) and not workload.shared else 1)


def buffer_bytes(workload: Workload) -> int:
    """The memory that fio takes for the blocks which it has in flight."""
    return workload.jobs * workload.depth * workload.block_size_bytes if isinstance(workload, FioWorkload) else 0


def modules_of(workload: Workload) -> tuple[str, ...]:
    """What a workload needs of the kernel, beside the filesystem."""
    return ("dm-flakey",) if isinstance(workload, FlakeyWorkload) else ()


def written_bytes(workload: Workload) -> int:
    """What a workload writes, its preparation included, as far as its sizes say."""
    if isinstance(workload, FioWorkload):
        laid_out = space_bytes(workload)
        return max(laid_out, workload.io_bytes * workload.jobs) if workload.operation.writes else laid_out
    if isinstance(workload, TimedWorkload):
        return workload.size_bytes if workload.operation is not TimedKind.BOOT else 0
    if isinstance(workload, PowerLossWorkload):
        return round(_FILES_PER_S * workload.mean_s * (workload.smallest_bytes + workload.size_bytes) / 2)
    return space_bytes(workload)
