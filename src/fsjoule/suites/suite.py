"""What a suite is."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
# What small boards write and sync of files of up to 256 KiB: seen were 5 to 8.
_FILES_PER_S = 10


@dataclass(frozen=True, slots=True)
class Suite:
    """A named list of workloads, or of `parts` that are suites themselves, `name/part`.

    `source` names the publication that it repeats, empty for our own. `filesystems` and `repeat` hold if the user names
    none; `published_repeat` is how often the publication repeated it. `provision` is for what can only be measured one
    way. `remarks` are for the reader of its figures.
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

    @property
    def leaves(self) -> tuple[Suite, ...]:
        """The parts, or the suite itself if it has none."""
        return self.parts or (self,)


def scaled(workload: Workload, factor: float) -> Workload:
    """The workload with its sizes multiplied, in whole blocks and never less than 16 of them.

    Of several files there are fewer, each as large as before.
    """
    if isinstance(workload, PowerLossWorkload):
        return workload  # its files are small, and written for a time
    if not isinstance(workload, FioWorkload):
        return replace(workload, size_bytes=round(workload.size_bytes * factor / KIB) * KIB)
    if workload.files > 1:
        files = max(1, round(workload.files * factor))
        return replace(workload, files=files, size_bytes=files * (workload.size_bytes // workload.files))
    block = workload.block_size_bytes
    blocks = max(_FEWEST_BLOCKS, round(workload.size_bytes * factor / block))
    moved = max(blocks, round(workload.io_bytes * factor / block)) if workload.io_bytes else 0
    return replace(workload, size_bytes=blocks * block, io_bytes=moved * block)


def space_bytes(workload: Workload) -> int:
    """What a workload puts onto the filesystem; 0 for one that fills a share of it."""
    if isinstance(workload, FlakeyWorkload):
        return workload.size_bytes + workload.files * workload.file_bytes
    if isinstance(workload, PowerLossWorkload):
        return round(workload.latest_s * _FILES_PER_S) * workload.size_bytes
    return workload.size_bytes * (workload.jobs if isinstance(workload, FioWorkload) else 1)


def written_bytes(workload: Workload) -> int:
    """What a workload writes, its preparation included, as far as its sizes say."""
    if isinstance(workload, FioWorkload):
        moved = max(workload.io_bytes, workload.size_bytes) if workload.operation.writes else workload.size_bytes
        return moved * workload.jobs
    if isinstance(workload, TimedWorkload):
        return workload.size_bytes if workload.operation is not TimedKind.BOOT else 0
    return space_bytes(workload)
