"""The nouns of fsjoule: frozen, with units in their names, and free of I/O.

Sizes are powers of two (MiB). The names are those of docs/architecture.md. Everything here except `Trace` is written
to JSON as it stands, so a change of a field is a change of a schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

MIB: Final = 1024 * 1024
KIB: Final = 1024

RUN_SCHEMA: Final = "fsjoule.run/2"
MEASUREMENT_SCHEMA: Final = "fsjoule.measurement/2"


# ---------------------------------------------------------------------------------------------------- what is done


class IoPattern(StrEnum):
    """fio's `rw`."""

    READ = "read"
    WRITE = "write"
    RANDREAD = "randread"
    RANDWRITE = "randwrite"

    @property
    def writes(self) -> bool:
        return self in (IoPattern.WRITE, IoPattern.RANDWRITE)


class TimedKind(StrEnum):
    """Operations that are timed as a whole, without fio."""

    BOOT = "boot"
    MKFS = "mkfs"
    MOUNT = "mount"
    UMOUNT = "umount"
    FSCK = "fsck"
    COPY = "copy"


class Provision(StrEnum):
    """How the filesystem under test gets onto the board."""

    ROOT = "root"  # a card image whose root partition has it
    SCRATCH = "scratch"  # made fresh on the scratch partition before every measurement


@dataclass(frozen=True, slots=True)
class FioWorkload:
    """One fio job. `fsync_every` counts writes (0: never); `end_fsync` makes buffered writes reach the card."""

    operation: IoPattern
    block_size_bytes: int
    size_bytes: int
    jobs: int = 1
    depth: int = 1
    direct: bool = False
    fsync_every: int = 0
    end_fsync: bool = True
    engine: str = "psync"
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
        return "-".join(parts)


@dataclass(frozen=True, slots=True)
class TimedWorkload:
    """An operation timed as a whole. `size_bytes` is what a copy moves or a mount finds on the filesystem."""

    operation: TimedKind
    size_bytes: int = 0
    kind: Literal["timed"] = "timed"

    @property
    def slug(self) -> str:
        """Short name, unique within a suite: `mkfs`, `copy-16m`."""
        return f"{self.operation.value}-{self.size_bytes // MIB}m" if self.size_bytes else self.operation.value


Workload = FioWorkload | TimedWorkload


@dataclass(frozen=True, slots=True)
class Planned:
    """One entry of a plan. `number` is its place in the randomised order, counted from 1.

    `kernel` is the label of one of the plan's kernels.
    """

    number: int
    repetition: int
    kernel: str
    filesystem: str
    workload: Workload

    @property
    def slug(self) -> str:
        return f"{self.filesystem}-{self.workload.slug}"


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


# ------------------------------------------------------------------------------------------------- what was measured


@dataclass(frozen=True, slots=True)
class Value:
    """A figure with its standard uncertainty (k=1), both in the unit that the field's name states."""

    value: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class Window:
    """From the start mark to the stop mark, in the meter's own microseconds."""

    start_us: float
    stop_us: float

    @property
    def duration_s(self) -> float:
        return (self.stop_us - self.start_us) / 1e6


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a window. `net` is gross less idle power times the window's duration.

    `power_sd_w` is the standard deviation over samples; `check_mj` is the meter's own cumulative energy over the whole
    ticks inside the window, which must equal `check_sum_mj`, the sum of raw samples over the same ticks.
    """

    gross_mj: Value
    net_mj: Value
    idle_power_w: Value
    mean_power_w: Value
    power_sd_w: float
    check_mj: float | None
    check_sum_mj: float


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """Samples of the meter over the whole trace: what its clock says there should be, and what arrived.

    `missed` ticks were never sampled by the meter, `lost` ones were sampled but their frames did not arrive.
    """

    expected: int
    received: int
    missed: int
    lost: int


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """The block device's own counters over the window (`/sys/block/*/stat`); sectors are turned into bytes.

    `request_ms` is how long its requests took, added up over all of them.
    """

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    discards: int
    flushes: int
    request_ms: int


@dataclass(frozen=True, slots=True)
class FioResult:
    """What fio reports of one job, its threads added up. Latencies are completion latencies."""

    version: str
    runtime_ns: int
    io_bytes: int
    ios: int
    latency_mean_ns: float
    latency_max_ns: int
    latency_percentiles_ns: dict[str, int]
    usr_cpu_percent: float
    sys_cpu_percent: float
    errors: int
    error: int

    @property
    def mib_per_s(self) -> float | None:
        return self.io_bytes / MIB / (self.runtime_ns / 1e9) if self.runtime_ns else None

    @property
    def iops(self) -> float | None:
        return self.ios / (self.runtime_ns / 1e9) if self.runtime_ns else None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One fio job or one timed operation, with all that explains it.

    `kernel` is the label of one of the run's kernels; it is not part of the series, whose points it tells apart.
    `window_s` is the time between the marks; `duration_s` is the board's own: fio's runtime, or the operation's time.
    Absent figures are None, never zero. `invalid_reasons` is empty for a valid measurement.
    """

    number: int
    slug: str
    repetition: int
    boot: int
    kernel: str
    series: SeriesKey
    workload: FioWorkload | TimedWorkload
    started_utc: str
    simulated: bool
    invalid_reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    window_s: float | None = None
    duration_s: float | None = None
    throughput_mib_per_s: float | None = None
    iops: float | None = None
    energy: Energy | None = None
    energy_mj_per_mib: Value | None = None
    energy_net_mj_per_mib: Value | None = None
    cpu_s_per_mib: float | None = None
    write_amplification: float | None = None
    samples: SampleCounts | None = None
    counters: DeviceCounters | None = None
    cpu_busy_s: float | None = None
    fio: FioResult | None = None
    window: Window | None = None
    idle_window: Window | None = None
    schema: Literal["fsjoule.measurement/2"] = MEASUREMENT_SCHEMA

    @property
    def valid(self) -> bool:
        return not self.invalid_reasons


# ------------------------------------------------------------------------------------------------------ the meter


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """What the meter says of itself. `shunt_lsb_uv` and `bus_lsb_mv` are the units of raw samples."""

    protocol: int
    firmware: str
    serial_number: str
    rate_hz: int
    shunt_uohm: int
    shunt_range_mv: int
    simulated: bool
    shunt_lsb_uv: float = 10.0
    bus_lsb_mv: float = 4.0

    @property
    def power_lsb_w(self) -> float:
        """Watts per unit of raw shunt times raw bus (INA219: 0.4 uW at 0.1 Ohm)."""
        return self.shunt_lsb_uv * 1e-6 * self.bus_lsb_mv * 1e-3 / (self.shunt_uohm * 1e-6)


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that the board sent to the meter, timestamped by the meter at its first byte."""

    time_us: int
    text: str


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """Raw samples, in order of their ticks, with what the meter said about them. Not part of any JSON.

    Sample i was taken at tick `ticks[i]` and at `times_us[i]` in the meter's own clock. `checkpoint_ticks` and
    `checkpoint_raw` are the meter's cumulative energy (raw shunt x raw bus, summed over all samples before that tick).
    All arrays are one-dimensional; the first four share one length, the two of checkpoints another.
    """

    info: MeterInfo
    ticks: npt.NDArray[np.int64]
    times_us: npt.NDArray[np.int64]
    shunt_raw: npt.NDArray[np.int16]
    bus_raw: npt.NDArray[np.uint16]
    checkpoint_ticks: npt.NDArray[np.int64]
    checkpoint_raw: npt.NDArray[np.int64]
    marks: tuple[Mark, ...]
    missed: int
    lost: int
    faults: tuple[str, ...] = ()

    @property
    def power_w(self) -> npt.NDArray[np.float64]:
        """Power of each sample in watts, shape (n,)."""
        return self.shunt_raw.astype(np.float64) * self.bus_raw.astype(np.float64) * self.info.power_lsb_w

    @property
    def counts(self) -> SampleCounts:
        received = len(self.ticks)
        return SampleCounts(received + self.missed + self.lost, received, self.missed, self.lost)


# --------------------------------------------------------------------------------------------------------- the run


@dataclass(frozen=True, slots=True)
class BoardProfile:
    """What software must know of a board before it runs; stands in the environment file.

    `mark_device` is the board's UART to the meter, `card_device` the block device of the card (`mmcblk1`),
    `scratch_device` the partition that may be overwritten; with `purge` it is discarded before each filesystem is made
    on it, so that a card starts from the same state. Published suites multiply their sizes by `size_factor`.
    `window_excess_s` is how much longer a window may be than the work in it.
    """

    name: str
    recipe: str
    simulated: bool
    mark_device: str
    card_device: str
    scratch_device: str
    purge: bool
    size_factor: float
    window_excess_s: float = 0.25


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """What the board says of itself. `kernel_release` is `uname -r`; `storage` names the card (mmc name, size)."""

    name: str
    machine: str
    kernel_release: str
    kernel_version: str
    cpu: str
    cpus: int
    memory_bytes: int
    storage: str
    storage_bytes: int
    storage_bus: str
    root_filesystem: str


class KernelOrigin(StrEnum):
    """Where a kernel came from."""

    DEBIAN = "debian"  # the archive
    PACKAGE = "package"  # a package file that the user named
    FOLDER = "folder"  # a build folder that the user named


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel of a run. `label` is what plan, measurements and reports call it, `asked` what the user called it.

    `digest` (SHA-256) is of the kernel image, the device tree and the modules as they went onto the card: kernels with
    equal ones are the same (empty in runs of the first schema). `checksums` are of the files that they came from.
    `lacks` are modules that the recipe wants and the kernel does not have.
    """

    label: str
    asked: str
    origin: KernelOrigin
    release: str
    digest: str
    package: str = ""
    checksums: dict[str, str] = field(default_factory=dict[str, str])
    git_describe: str = ""
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What was flashed. Checksums are SHA-256 by file name; packages are Debian versions by name.

    `kernel_choice` is the label of the kernel; `kernel_package` is empty if that did not come in one.
    """

    recipe: str
    kernel_choice: str
    kernel_package: str
    card_sha256: str
    checksums: dict[str, str]
    packages: dict[str, str]
    root_filesystem: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for, and the order that the seed gave."""

    suite: str
    filesystems: tuple[str, ...]
    kernels: tuple[str, ...]
    provision: Provision
    repeat: int
    seed: int
    size_factor: float
    entries: tuple[Planned, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One invocation on one board. `phases_s` says where the time went.

    `boards` is what the board said of itself, by the label of the kernel that it ran; `images` are the cards that were
    flashed. Both grow with the run.
    """

    run_id: str
    started_utc: str
    status: RunStatus
    simulated: bool
    plan: Plan
    kernels: tuple[KernelFacts, ...] = ()
    boards: dict[str, BoardFacts] = field(default_factory=dict[str, BoardFacts])
    images: tuple[ImageFacts, ...] = ()
    meter: MeterInfo | None = None
    versions: dict[str, str] = field(default_factory=dict[str, str])
    phases_s: dict[str, float] = field(default_factory=dict[str, float])
    finished_utc: str | None = None
    abort_reason: str | None = None
    command: tuple[str, ...] = ()
    measurements: tuple[str, ...] = ()
    schema: Literal["fsjoule.run/2"] = RUN_SCHEMA

    @property
    def board(self) -> BoardFacts | None:
        """What the board said at its first boot."""
        return next(iter(self.boards.values()), None)

    @property
    def image(self) -> ImageFacts | None:
        """The first card."""
        return self.images[0] if self.images else None
