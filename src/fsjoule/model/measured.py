"""A measurement: one fio job or one timed operation, with its energy, its outcome and what explains it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from fsjoule.model.board_state import BoardStates
from fsjoule.model.card import Projection
from fsjoule.model.crash import CrashFacts
from fsjoule.model.operation import MIB
from fsjoule.model.plan import SeriesKey
from fsjoule.model.trace import SampleCounts
from fsjoule.model.workload import Workload

if TYPE_CHECKING:  # most commands have no profile, and numpy takes a quarter of a second to import
    import numpy as np
    import numpy.typing as npt

MEASUREMENT_SCHEMA: Final = "fsjoule.measurement/1"
KERNEL_WARNED: Final = "the kernel warned: "


@dataclass(frozen=True, slots=True)
class Value:
    """A figure with its standard uncertainty (k=1), both in the unit that the field's name states."""

    value: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class Stated:
    """A figure that somebody else measured, in its metric's unit; `uncertainty` (k=1) is None if it was not stated."""

    value: float
    uncertainty: float | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """From the start mark to the stop mark, in the meter's own microseconds."""

    start_us: float
    stop_us: float

    @property
    def duration_s(self) -> float:
        return (self.stop_us - self.start_us) / 1e6


@dataclass(frozen=True, slots=True)
class EnergyBudget:
    """Where an energy's uncertainty comes from: standard uncertainties in mJ, one per cause.

    `shunt_rounding_mj` and `bus_rounding_mj` come from the steps of the two converters, `offset_mj` and `gain_mj` from
    their errors, `shunt_mj` from the resistor; `marks_mj` from late marks, `slack_mj` from a window longer than the
    work; `sampling_mj` from the time between samples, `gaps_mj` from gaps, and `idle_mj` from the uncertainty of idle
    power. docs/energy.md has the formulas.
    """

    shunt_rounding_mj: float
    bus_rounding_mj: float
    offset_mj: float
    gain_mj: float
    shunt_mj: float
    marks_mj: float
    slack_mj: float
    sampling_mj: float
    gaps_mj: float
    idle_mj: float

    @property
    def total_mj(self) -> float:
        """The root sum of squares (JCGM 100:2008, 5.1.2)."""
        return math.hypot(*(getattr(self, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a window. `net` is gross less idle power times the window's duration.

    `power_sd_w` is the standard deviation over samples. `check_mj` is the meter's own sum over the whole ticks inside
    the window whose frames all arrived; it must equal `check_sum_mj`, the sum of raw samples over the same ticks. For
    `lost_ticks` only the sum of their energies is known, for `missed_ticks` nothing.
    """

    gross_mj: Value
    net_mj: Value
    idle_power_w: Value
    mean_power_w: Value
    power_sd_w: float
    check_mj: float | None
    check_sum_mj: float
    lost_ticks: int
    missed_ticks: int
    gross_budget: EnergyBudget
    net_budget: EnergyBudget


@dataclass(frozen=True, slots=True)
class FlashCounters:
    """What raw flash memory counts beside pages: over the window but for `bad_blocks` and `most_erased`, at its end.

    An erasure erases `block_bytes` of `size_bytes`. `failed_pages` have more wrong bits than their code corrects.
    `most_erased` is the erasures of the block that has most, counted by UBI; None without it.
    """

    erases: int
    size_bytes: int
    block_bytes: int
    corrected_bits: int
    failed_pages: int
    bad_blocks: int
    most_erased: int | None = None

    @property
    def erased_bytes(self) -> int:
        return self.erases * self.block_bytes


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """The block device's own counters over the window (`/sys/block/*/stat`); sectors are turned into bytes.

    `request_ms` is the sum of all requests' times; `busy_ms` is the time with any request, if counted. With `flash` it
    is raw flash memory: a read loads a page, a write programs one, nothing is discarded or flushed, no time is counted.
    """

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    discards: int
    flushes: int
    request_ms: int
    busy_ms: int | None = None
    flash: FlashCounters | None = None


@dataclass(frozen=True, slots=True)
class FioResult:
    """fio's report on one job, its threads added up. Latencies are completion latencies.

    `fsync_percentiles_ns` are those of its fsyncs (empty without `fsync_every`).
    """

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
    fsync_percentiles_ns: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def mib_per_s(self) -> float | None:
        return self.io_bytes / MIB / (self.runtime_ns / 1e9) if self.runtime_ns else None

    def latency_ms(self, percentile: float) -> float | None:
        """This percentage of the requests took at most this long; None if fio did not say."""
        return _percentile_ms(self.latency_percentiles_ns, percentile)

    def fsync_ms(self, percentile: float) -> float | None:
        """The same for fsyncs."""
        return _percentile_ms(self.fsync_percentiles_ns, percentile)


def _percentile_ms(percentiles_ns: Mapping[str, int], percentile: float) -> float | None:
    # fio writes 99.000000, and some run folders have 99: the number counts, not its spelling.
    return next((ns / 1e6 for name, ns in percentiles_ns.items() if _number(name) == percentile), None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Space:
    """A filesystem that was just made and mounted: its size, and the space it uses itself (statfs, f_bsize units).

    `kernel_threads` is the number of kernel threads that its mount added, without workers.
    """

    total_bytes: int
    used_bytes: int
    kernel_threads: int


class FileFate(StrEnum):
    """The fate of a file whose sync had returned, for a program that reads it.

    DETECTED and REFUSED are damage that every reader notices. Later fates show only to a reader with the checksum.
    """

    INTACT = "intact"
    DETECTED = "detected"  # damaged, and reading it raises an error
    REFUSED = "refused"  # its filesystem cannot be mounted, even after a repair
    SILENT = "silent"  # damaged, but reading it raises no error
    ZEROED = "zeroed"  # like silent, but mostly zeros or shortened
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class DamageOutcome:
    """The remains of a filesystem and of the files on it whose sync had returned.

    `files` counts files by fate, without zeros; `damaged` names the first ones that are not intact. `mounts`: it could
    be mounted; `read_only`: only read-only, at once or later. `check_exit` is its checker's exit code (None without a
    checker); the checker changes nothing. `check_clean`: the checker found no error. A filesystem that cannot be
    mounted or is not clean is repaired; `repaired` is whether it could be mounted then (None without repair). Files are
    read before the repair if possible, otherwise after it.

    `messages` are the kernel's warnings and errors from mount to unmount. After a power cut, `cut_s` is its time after
    the start of the writer; `seed` chose that time and the disk's losses.
    """

    files: dict[FileFate, int]
    mounts: bool
    read_only: bool
    check_exit: int | None
    check_clean: bool | None
    damaged: tuple[str, ...] = ()
    repaired: bool | None = None
    messages: tuple[str, ...] = ()
    cut_s: float | None = None
    seed: int | None = None

    @property
    def promised(self) -> int:
        return sum(self.files.values())

    @property
    def broken(self) -> int:
        return self.promised - self.files.get(FileFate.INTACT, 0)

    @property
    def failed(self) -> bool:
        """Whether a promised file is lost, or the filesystem cannot be mounted for writing."""
        return bool(self.broken) or not self.mounts or self.read_only


@dataclass(frozen=True, slots=True)
class AgeFacts:
    """A filesystem before a measurement, after its age was replayed. `name` is the age's: `1y-logger`.

    In that time the device is written `turns` times; `replayed_turns` of them were replayed. `files` are there, and the
    filesystem is `full` to that share. `operations_sha256` is the digest of all operations, `layout_md5` that of the
    places of all files on the device, in so many `extents`; "" and None if the filesystem does not tell.
    `free_in_short_runs` is the share of the free space in runs shorter than 1 MiB; None if no program lists them.
    `image_sha256` is the digest of the whole filesystem, if it was replayed once and comes from an image.
    """

    name: str
    turns: float
    replayed_turns: float
    files: int
    full: float
    operations_sha256: str
    layout_md5: str
    extents: int | None
    free_in_short_runs: float | None
    mean_free_run_bytes: float | None
    image_sha256: str = ""

    @property
    def text(self) -> str:
        free = "the runs of its free space are not known"
        if self.free_in_short_runs is not None and self.mean_free_run_bytes is not None:
            free = (
                f"{100 * self.free_in_short_runs:.1f} % of its free space in runs shorter than 1 MiB, "
                f"a run is {self.mean_free_run_bytes / 1024:.0f} KiB"
            )
        extents = "" if self.extents is None else f" in {self.extents} extents"
        layout = f", layout {self.layout_md5[:12]}" if self.layout_md5 else ""
        image = f", image {self.image_sha256[:12]}" if self.image_sha256 else ""
        return (
            f"aged {self.name}: the device written {self.replayed_turns:.3g} of {self.turns:.3g} times, {self.files} "
            f"files{extents}, {100 * self.full:.0f} % full, {free}; operations {self.operations_sha256[:12]}"
            f"{layout}{image}"
        )


@dataclass(frozen=True, slots=True)
class HeldFacts:
    """How a board was in a state that it was held in.

    `drift_w_per_min` is the slope of its power with standard uncertainty; None for a window that is too short.
    `interrupts_per_s` are those of all processors; None if they were not counted. `woken_by_per_s` are the most
    frequent ones by name, `woken_per_s` the processes and kernel threads that most often went to sleep,
    `programs_per_s` all starts of processes. Of a suspended board `slept_s` is the time in which its kernel's clock
    stood still, `resume_s` the time from then until its programs ran; None if the kernel does not tell.
    """

    drift_w_per_min: Value | None = None
    interrupts_per_s: float | None = None
    woken_by_per_s: dict[str, float] = field(default_factory=dict[str, float])
    woken_per_s: dict[str, float] = field(default_factory=dict[str, float])
    programs_per_s: float | None = None
    slept_s: float | None = None
    resume_s: float | None = None


# In a measurement's counts: the instructions that all processors executed.
INSTRUCTIONS: Final = "instructions"
# Of them those of programs, in their own code, and those of the kernel.
USER_INSTRUCTIONS: Final = "user-instructions"
KERNEL_INSTRUCTIONS: Final = "kernel-instructions"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One fio job or one timed operation, with everything that explains it.

    `kernel` is the label of one of the run's kernels; it is not part of the series, whose points differ by it.
    `window_s` is the time between the marks; `duration_s` is the board's own: fio's runtime, or the operation's time.
    `duration_uncertainty_s` (k=1) is that of a segment of a boot, None for others.
    Absent figures are None, never zero. `invalid_reasons` is empty for a valid measurement. `user_s` and `sys_s` are
    the CPU time of a timed program; `unmount_s` is the time of the unmount after it, which `duration_s` excludes.
    `outcome` is the fate of files whose sync had returned: a bad one is a valid measurement. `crash` is what each power
    cut would leave behind. `aged` is the filesystem
    before it, if it was aged. `kernel_threads_s` is the
    CPU time of kernel threads in the window, by name, without idle ones. `counts` are what was counted in the window
    beside these, by name: `INSTRUCTIONS` with a profile. `image_bytes` is the size of a read-only filesystem on its
    medium, with its hash tree. `board_state` is the board's around the window, None if it was not read. `place` is that
    of a run on several places. `stated` are figures of an import, by their metric's name: they count before all others.
    `held` is how a board was that was held in a state.
    """

    number: int
    slug: str
    repetition: int
    boot: int
    kernel: str
    series: SeriesKey
    workload: Workload
    started_utc: str
    simulated: bool
    invalid_reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    window_s: float | None = None
    duration_s: float | None = None
    duration_uncertainty_s: float | None = None
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
    user_s: float | None = None
    sys_s: float | None = None
    unmount_s: float | None = None
    space: Space | None = None
    kernel_threads_s: dict[str, float] = field(default_factory=dict[str, float])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    image_bytes: int | None = None
    outcome: DamageOutcome | None = None
    crash: CrashFacts | None = None
    held: HeldFacts | None = None
    aged: AgeFacts | None = None
    projected: Projection | None = None
    fio: FioResult | None = None
    window: Window | None = None
    idle_window: Window | None = None
    board_state: BoardStates | None = None
    place: str = ""
    stated: dict[str, Stated] = field(default_factory=dict[str, Stated])
    schema: Literal["fsjoule.measurement/1"] = MEASUREMENT_SCHEMA

    @property
    def valid(self) -> bool:
        return not self.invalid_reasons

    @property
    def duration(self) -> Value | None:
        """The duration with its uncertainty, 0 where none is stated."""
        return None if self.duration_s is None else Value(self.duration_s, self.duration_uncertainty_s or 0.0)

    def counted_per_mib(self, name: str) -> float | None:
        """A count for each MiB that fio moved; None if it was not counted, or nothing was moved."""
        moved_bytes = self.fio.io_bytes if self.fio else 0
        return self.counts[name] / (moved_bytes / MIB) if moved_bytes and name in self.counts else None

    @property
    def erases_per_mib(self) -> float | None:
        """Blocks of raw flash that were erased for each MiB that fio moved; None on other storage."""
        moved_bytes, flash = self.fio.io_bytes if self.fio else 0, self.counters.flash if self.counters else None
        return flash.erases / (moved_bytes / MIB) if flash and moved_bytes else None

    @property
    def kernel_warnings(self) -> tuple[str, ...]:
        """Faults of the kernel itself in this boot so far, such as `WARNING fs/ext4/inode.c ext4_iomap_begin`."""
        return tuple(note.removeprefix(KERNEL_WARNED) for note in self.notes if note.startswith(KERNEL_WARNED))


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Instructions executed between a measurement's marks, by address: one row per instruction, all arrays (n,).

    `pages` tells programs with equal addresses apart: a hash of the instruction's page, 0 for the kernel. `busy_ns` is
    the time of executed instructions by the processor's own count, each `instruction_ns`. An instruction that could not
    reach its memory, or that the host interrupted at a device, is counted again; `repeated` counts these.
    `of_programs` are the instructions of programs in their own code, to the end of a block that a page fault leaves.
    With `sampled` a row counts samples, each of which stands for `instruction_ns`; `programs` are the names of pages.
    """

    addresses: npt.NDArray[np.uint64]
    pages: npt.NDArray[np.uint64]
    executed: npt.NDArray[np.uint64]
    window_ns: int
    busy_ns: int
    instruction_ns: int
    repeated: int = 0
    sampled: bool = False
    programs: Mapping[int, str] = field(default_factory=dict[int, str])
    of_programs: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The executed instructions by their names in a measurement's counts."""
        whole = self.busy_ns // self.instruction_ns
        if self.of_programs is None:
            return {INSTRUCTIONS: whole}
        return {
            INSTRUCTIONS: whole,
            USER_INSTRUCTIONS: self.of_programs,
            KERNEL_INSTRUCTIONS: max(0, whole - self.of_programs),
        }

    @property
    def sum_ns(self) -> int:
        """The time of all rows: the busy time plus the time of repeated instructions."""
        return int(self.executed.sum()) * self.instruction_ns


@dataclass(frozen=True, slots=True)
class Symbols:
    """Functions of a boot's kernel: start addresses, ascending, and modules (empty for the kernel itself).

    `folders` are the modules' folders in the kernel's source, by module: `fs/btrfs`.
    """

    addresses: npt.NDArray[np.uint64]
    names: Sequence[str]
    modules: Sequence[str]
    folders: Mapping[str, str] = field(default_factory=dict[str, str])


# Why a measurement that was sampled is invalid: it is a profile, and nothing else.
SAMPLED: Final = "perf took samples, which slows the board down: its figures do not count"
