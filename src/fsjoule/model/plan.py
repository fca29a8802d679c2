"""What is done: workloads, the order they are done in, and which of them may be compared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from fsjoule.model.outcome import FlakeyWorkload, PowerLossWorkload

MIB: Final = 1024 * 1024
KIB: Final = 1024


class IoPattern(StrEnum):
    """fio's `rw`."""

    READ = "read"
    WRITE = "write"
    RANDREAD = "randread"
    RANDWRITE = "randwrite"
    READWRITE = "rw"  # one read for each write
    RANDRW = "randrw"

    @property
    def writes(self) -> bool:
        return self not in (IoPattern.READ, IoPattern.RANDREAD)

    @property
    def reads(self) -> bool:
        return self not in (IoPattern.WRITE, IoPattern.RANDWRITE)


# Those that only read or only write.
PURE_PATTERNS: Final = (IoPattern.READ, IoPattern.WRITE, IoPattern.RANDREAD, IoPattern.RANDWRITE)

# What a board's first storage device is called, the one that it boots from.
CARD: Final = "card"


class TimedKind(StrEnum):
    """Operations that are timed as a whole, without fio."""

    BOOT = "boot"
    MKFS = "mkfs"
    MOUNT = "mount"
    UMOUNT = "umount"
    FSCK = "fsck"
    COPY = "copy"
    WRITE_FILES = "write_files"
    HASH_FILES = "hash_files"
    FRAGMENT = "fragment"
    REMOVE = "removing"

    @property
    def on_files(self) -> bool:
        """Whether it works on many files of a mounted filesystem; the unmount after it is timed apart."""
        return self in (TimedKind.WRITE_FILES, TimedKind.HASH_FILES, TimedKind.FRAGMENT, TimedKind.REMOVE)


class Provision(StrEnum):
    """How the filesystem under test gets onto the board."""

    ROOT = "root"  # a card image whose root partition has it
    SCRATCH = "scratch"  # made fresh on the scratch partition before every measurement


@dataclass(frozen=True, slots=True)
class FioWorkload:
    """One fio job. `fsync_every` counts writes (0: never); `end_fsync` makes buffered writes reach the card.

    `size_bytes` is shared out over `files`; with `io_bytes` that much is moved, over and over in the same files, with
    `runtime_s` as much as that time allows. Each of the `jobs` has its own files, unless they are `shared`. With
    `kernel_threads` the CPU time of each kernel thread is kept as well.
    """

    operation: IoPattern
    block_size_bytes: int
    size_bytes: int
    jobs: int = 1
    depth: int = 1
    direct: bool = False
    fsync_every: int = 0
    end_fsync: bool = True
    engine: str = "psync"
    files: int = 1
    io_bytes: int = 0
    runtime_s: float = 0.0
    shared: bool = False
    kernel_threads: bool = False
    kind: Literal["fio"] = "fio"

    @property
    def slug(self) -> str:
        """Short name, unique within a suite: `randread-16k`."""
        parts = [self.operation.value, f"{self.block_size_bytes // KIB}k"]
        if self.direct:
            parts.append("direct")
        if self.jobs > 1:
            parts.append(f"{self.jobs}jobs")
        if self.depth > 1:
            parts.append(f"qd{self.depth}")
        if self.fsync_every:
            parts.append(f"fsync{self.fsync_every}")
        if self.files > 1:
            parts.append(f"{self.files}files")
        if self.runtime_s:
            parts.append(f"{self.runtime_s:g}s")
        return "-".join(parts)


@dataclass(frozen=True, slots=True)
class TimedWorkload:
    """An operation timed as a whole.

    `size_bytes` is what a copy moves, or how much there is in the files that are written or hashed. `fill` is the share
    of the filesystem that is in use: before a mount, or when fragmenting ends. A copy comes from the board's memory, or
    with `from_root` from a file of its root filesystem.
    """

    operation: TimedKind
    size_bytes: int = 0
    fill: float = 0.0
    from_root: bool = False
    kind: Literal["timed"] = "timed"

    @property
    def slug(self) -> str:
        """Short name, unique within a suite: `mkfs`, `copy-16m`, `mount-full60`."""
        parts = [self.operation.value]
        if self.size_bytes:
            parts.append(f"{self.size_bytes // MIB}m" if self.size_bytes % MIB == 0 else f"{self.size_bytes // KIB}k")
        if self.fill:
            parts.append(f"full{round(100 * self.fill)}")
        return "-".join(parts)


Workload = FioWorkload | TimedWorkload | PowerLossWorkload | FlakeyWorkload


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
    def is_boot(self) -> bool:
        return self.workload.kind == "timed" and self.workload.operation is TimedKind.BOOT

    @property
    def on_root(self) -> bool:
        """Whether its filesystem is the one that the board boots from, made with the card and not on the board."""
        return self.provision is Provision.ROOT or self.is_boot


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
