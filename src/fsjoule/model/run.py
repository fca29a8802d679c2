"""One run: the board, its lab, its card images, and where the time went."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal

from fsjoule.errors import Part
from fsjoule.model.board_state import StatePolicy
from fsjoule.model.card import CardModel
from fsjoule.model.emmc import EmmcFacts
from fsjoule.model.labels import without_passwords
from fsjoule.model.mark_line import MarkLine
from fsjoule.model.medium import Medium, medium_of
from fsjoule.model.meter import MeterInfo
from fsjoule.model.plan import Plan

RUN_SCHEMA: Final = "fsjoule.run/1"
# The recipe (images/<name>.toml) of a board without an environment file.
DEFAULT_RECIPE: Final = "imx6ul"
# `kernel_role` in a run's versions, for a kernel measured beside the one under test.
REFERENCE_KERNEL: Final = "reference"
# Names in a run's versions for what was under test, and for whom. All other names are programs that took part.
REVISION: Final = ("branch", "commit", "pipeline", "kernel_role")


@dataclass(frozen=True, slots=True)
class Exporter:
    """A labgrid exporter of a place's resources: its name, and the computer that serves them."""

    name: str
    host: str


@dataclass(frozen=True, slots=True)
class MeterPort:
    """The labgrid resource of the meter's port.

    `address` is HOST:PORT (another one after the exporter's restart), `path` the exporter's device; both may be "".
    """

    resource: str
    address: str
    path: str


@dataclass(frozen=True, slots=True)
class LabFacts:
    """The lab of a run. `user` is USER@HOST, labgrid's holder. A virtual lab's exporter is `fsjoule-` plus its name."""

    place: str
    coordinator: str
    exporters: tuple[Exporter, ...]
    meter: MeterPort | None
    user: str

    @property
    def exporter_names(self) -> str:
        return ", ".join(exporter.name for exporter in self.exporters)

    @property
    def exporters_text(self) -> str:
        """`rack3 on rack3.lab`."""
        return ", ".join(f"{each.name} on {each.host}" if each.host else each.name for each in self.exporters)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The LAVA job that a run was measured for. `number`, `device` and `worker` are LAVA's names; each may be "".

    `url` is the job's page. `pulled`: the run folder was made anew from the job's log, and has no traces.
    """

    number: str
    device: str
    worker: str
    url: str
    pulled: bool = False

    @property
    def text(self) -> str:
        """`job 17 on imx6ul-evk of rack3`."""
        where = f" on {self.device}" if self.device else ""
        return f"job {self.number}{where}{f' of {self.worker}' if self.worker else ''}"


@dataclass(frozen=True, slots=True)
class ImportFacts:
    """What a run was imported from, which fsjoule has not measured: the format, and SHA-256 of its files by name."""

    format: str
    files: dict[str, str]

    @property
    def text(self) -> str:
        return f"imported from {self.format}: {', '.join(self.files)}; not measured by fsjoule"


@dataclass(frozen=True, slots=True)
class Storage:
    """A further storage device of a board. All of it may be overwritten.

    `device` is its block device (`sda`) or its MTD device (`mtd0`). `module` is a kernel module with its parameters
    that makes the device. `model` has its times and energies, if the emulated device takes no time. One that `forgets`
    is empty after each power-on.
    """

    device: str
    size_bytes: int
    module: str = ""
    model: CardModel | None = None
    forgets: bool = False

    @property
    def medium(self) -> Medium:
        return medium_of(self.device)


class Reach(StrEnum):
    """How much of a board's card its flasher can change, most first."""

    CARD = "the whole card"
    KERNEL = "the kernel"
    SCRATCH = "the scratch partition"


@dataclass(frozen=True, slots=True)
class BoardProfile:
    """Facts about a board that are needed before it runs, from the environment file.

    `mark_device` is the board's UART to the meter, or an LED that is a GPIO; with `marks_on_console` it is the
    console's UART, to which the meter listens. `card_device` is the block device of the card (`mmcblk1`),
    `scratch_device` the partition that may be overwritten; with `purge` it is discarded before each filesystem is made
    on it, so that a card starts from the same state. With `scratch_bytes` only its begin is used. `size_factor`
    multiplies the sizes of published suites, unless `size_factors` has a factor for the suite.

    `window_excess_s` is how much a window may exceed its work. With `guest_time` the clocks of board and meter stop
    while the board waits for input. The emulated card takes no time then; `card_model` is the card to project.
    `storages` are storage devices beside the card, by name; `log_storage` is the one that has the log of crash states,
    "" for the board's memory. `memory_bytes` is 0 if unknown.
    `reach` is what its flasher can change, `state_policy` what is asked of the board's state. With `count_instructions`
    perf counts them on the board.
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
    guest_time: bool = False
    card_model: CardModel | None = None
    size_factors: dict[str, float] = field(default_factory=dict[str, float])
    storages: dict[str, Storage] = field(default_factory=dict[str, Storage])
    memory_bytes: int = 0
    reach: Reach = Reach.CARD
    marks_on_console: bool = False
    state_policy: StatePolicy | None = None
    scratch_bytes: int = 0
    log_storage: str = ""
    count_instructions: bool = False

    @property
    def mark_line(self) -> MarkLine:
        return MarkLine(self.mark_device, self.marks_on_console)

    def factor_for(self, suite: str) -> float:
        """The factor for the sizes of a published suite, or of a part of one (`elc2015/boot`)."""
        return self.size_factors.get(suite, self.size_factors.get(suite.split("/", maxsplit=1)[0], self.size_factor))


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """The board's report about itself. `kernel_release` is `uname -r`; `storage` names the card (mmc name, size).

    `tick_hz` is how often its kernel ticks a second (CONFIG_HZ), 0 if it is not known.
    """

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
    tick_hz: int = 0


@dataclass(frozen=True, slots=True)
class HostLoad:
    """How busy the computer was: load averages of a minute, the first and the highest one of the run.

    A load is how many processes want a processor, of which there are `cores`. An emulated board in real time is itself
    one or two of them.
    """

    cores: int
    first: float
    most: float

    @property
    def is_busy(self) -> bool:
        return self.most > self.cores

    @property
    def text(self) -> str:
        """`load 7.1 on 2 processor cores`."""
        return f"load {self.most:.1f} on {self.cores} processor core{'s' * (self.cores > 1)}"

    def with_later(self, later: HostLoad) -> HostLoad:
        return replace(self, most=max(self.most, later.most))


class KernelOrigin(StrEnum):
    DEBIAN = "debian"  # the archive
    PACKAGE = "package"  # a package file that the user named
    FOLDER = "folder"  # a build folder that the user named
    BOARD = "board"  # what ran on a board that somebody else has booted


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel of a run. `label` is its name in plan, measurements and reports, `asked` the user's name for it.

    `digest` is the SHA-256 of kernel image, device tree and modules as they went onto the card: kernels with equal
    digests are the same (empty without a card of ours). `checksums` belong to the files that they came from. `lacks`
    are modules that the recipe wants and the kernel does not have, and symbols (`EROFS_FS_ZIP_ZSTD`) that a variant of
    a filesystem would need.
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


# The names of a boot loader's files among a card's checksums begin so.
BOOT_LOADER: Final = "boot loader "


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """A flashed card image. Checksums are SHA-256 by file name; packages are Debian versions by name.

    `kernel_choice` is the label of the kernel; `kernel_package` is empty if the kernel did not come in a package.
    `make_options` and `mount_options` belong to the root partition; `root_bytes` is the size of a read-only one, with
    its hash tree (0: it is as large as its partition).
    """

    recipe: str
    kernel_choice: str
    kernel_package: str
    card_sha256: str
    checksums: dict[str, str]
    packages: dict[str, str]
    root_filesystem: str = ""
    make_options: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()
    root_bytes: int = 0

    @property
    def has_boot_loader(self) -> bool:
        """Whether the card has a boot loader's files, which are among the checksums."""
        return any(name.startswith(BOOT_LOADER) for name in self.checksums)


@dataclass(frozen=True, slots=True)
class LabStep:
    """One step of labgrid: its name (`title`), its driver, when, how long, and its error.

    `level` counts from 1; a step is part of the last one before it with a lower level.
    """

    title: str
    source: str
    level: int
    started_utc_ms: int
    duration_ms: int
    args: dict[str, str] = field(default_factory=dict[str, str])
    error: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """An attempt at a measurement that ended in an error: the lab's, which may be `transient`, or a `bug`.

    `number` is the entry of the plan. `steps` are labgrid's steps until then. `part` is the part of the lab that has
    certainly failed; None if none has. `place` is that of a run on several places.
    """

    number: int
    started_utc: str
    ended_utc: str
    what: str
    transient: bool
    bug: bool = False
    hint: str = ""
    steps: tuple[LabStep, ...] = ()
    part: Part | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class PoolPlace:
    """A place of a run on several: its lab, the meter of its joules, and where the time went in which it was held.

    `held_s` is from its first readiness to its release; 0 until then.
    """

    lab: LabFacts
    meter: MeterInfo | None = None
    held_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Run:
    """One invocation on one board, or on the `places` of a pool. `phases_s` says where the time went.

    `boards` has the board's facts by kernel label; `images` are the flashed cards. Both grow with the run. `meter` is
    the one instrument of all its joules; `lab` says where it was measured (None outside of a lab), `job` for
    which LAVA job (None outside of LAVA). `imported` says that others have measured it.
    A run on several places names the first one as its `lab`; in real time
    each has its own meter, and `meter` is None.
    `emmcs` has what the eMMCs of a single board say of themselves, by the board's name of the storage device.
    `ended_early` says why a complete run measured less than planned. `resumed_utc` are the times when an aborted run
    was resumed. `faults` are attempts that ended in an error. `load` is the computer's that controls the board.
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
    lab: LabFacts | None = None
    job: JobFacts | None = None
    versions: dict[str, str] = field(default_factory=dict[str, str])
    phases_s: dict[str, float] = field(default_factory=dict[str, float])
    finished_utc: str | None = None
    abort_reason: str | None = None
    ended_early: str | None = None
    resumed_utc: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    command: tuple[str, ...] = ()
    measurements: tuple[str, ...] = ()
    places: tuple[PoolPlace, ...] = ()
    load: HostLoad | None = None
    imported: ImportFacts | None = None
    emmcs: dict[str, EmmcFacts] = field(default_factory=dict[str, EmmcFacts])
    schema: Literal["fsjoule.run/1"] = RUN_SCHEMA

    def __post_init__(self) -> None:
        # Whoever types a command or edits run.json: pages, reports and the index show it.
        object.__setattr__(self, "command", without_passwords(self.command))

    @property
    def by_bench(self) -> bool:
        """Whether a bench has made it, with a plan. `fsjoule gate` and `fsjoule trend` decide as they go."""
        return self.command[:1] == ("pytest",) or self.command[:2] == ("fsjoule", "bench")

    @property
    def board(self) -> BoardFacts | None:
        return next(iter(self.boards.values()), None)

    @property
    def labs(self) -> tuple[LabFacts, ...]:
        """The lab, or those of all places."""
        return tuple(each.lab for each in self.places) or (() if self.lab is None else (self.lab,))

    @property
    def meters(self) -> tuple[MeterInfo, ...]:
        """The instruments of its joules; boards in guest time share one."""
        known = [self.meter, *(each.meter for each in self.places)]
        return tuple({each.serial_number: each for each in known if each is not None}.values())

    @property
    def place_names(self) -> str:
        """`evk-1`, or `evk-1, evk-2`; empty if it names none."""
        return ", ".join(sorted(lab.place for lab in self.labs))

    @property
    def exporter_names(self) -> str:
        return ", ".join(sorted({name for lab in self.labs for name in lab.exporter_names.split(", ") if name}))

    @property
    def meter_names(self) -> str:
        """The serial numbers of its meters."""
        return ", ".join(sorted(meter.serial_number for meter in self.meters))

    @property
    def image(self) -> ImageFacts | None:
        return self.images[0] if self.images else None
