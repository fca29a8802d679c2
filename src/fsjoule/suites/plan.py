"""Makes a plan from a suite: all entries in order, and checks that they fit the board."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.filesystems import FILESYSTEMS, filesystem
from fsjoule.layers import stack
from fsjoule.model import (
    CARD,
    MIB,
    FioWorkload,
    KernelFacts,
    Planned,
    Provision,
    Storage,
    TimedKind,
    TimedWorkload,
    Workload,
)
from fsjoule.model.emmc import NO_CACHE, storage_setting
from fsjoule.model.filesystem import content_of, title_of
from fsjoule.model.layer import base_of, device_of, layered, stack_of
from fsjoule.model.medium import Medium
from fsjoule.model.workload import CrashWorkload, FlakeyWorkload, PowerLossWorkload
from fsjoule.suites.suite import StorageChoice, Suite

_SEED_BITS: Final = 31  # fio takes 64 bits; 31 are a positive number everywhere
# With `scratch`, the card's root partition, which boots and holds the tools, has this filesystem.
SCRATCH_ROOT: Final = "ext4"
USABLE: Final = 0.8  # share of a partition for files: the rest is for the filesystem itself
_BUFFERS: Final = 0.25  # share of a board's memory for fio's buffers: the rest is for page cache and kernel
_IN_MEMORY: Final = 0.4  # share of a board's memory for an image and its files; its /tmp has half
_RAW: Final = ("raw",)
_MMC: Final = "mmcblk"


@dataclass(frozen=True, slots=True)
class StorageSpace:
    """Room in bytes on a board's card (scratch partition, free space of the root) and on further storage, by name."""

    scratch_bytes: int
    root_free_bytes: int
    further_bytes: Mapping[str, int] = field(default_factory=dict[str, int])

    def scratch_of(self, storage: str) -> tuple[str, int]:
        """The name of a storage device's scratch space, and its size."""
        device = device_of(storage)
        if device == CARD:
            return "the scratch partition of the card", self.scratch_bytes
        return device, self.further_bytes[device]


@dataclass(frozen=True, slots=True)
class Planning:
    """A plan's inputs beside the suite. `provision` is None if the suite decides (default: `scratch`).

    `factor_for` gives the factor for the sizes of a published suite or part; ours fit as they are. `root_filesystems`
    are those that a card image can have. `kernel_order` has each repetition's kernels in boot order, for a comparison
    of two kernels. `guest_time`, `memory_bytes` (0: unknown) and the `further` storage devices are the board's;
    `storages` are the devices under test, None if the suite decides; each is measured with each of the `stacks` of
    layers. `workloads` are slugs to measure, None for all; `states` are crash states to check, none for all.
    """

    filesystems: tuple[str, ...]
    kernels: tuple[str, ...]
    repeat: int
    seed: int
    provision: Provision | None = None
    factor_for: Callable[[str], float] = lambda _name: 1.0
    root_filesystems: tuple[str, ...] = (SCRATCH_ROOT,)
    kernel_order: Sequence[Sequence[str]] | None = None
    guest_time: bool = False
    memory_bytes: int = 0
    further: Mapping[str, Storage] = field(default_factory=dict[str, Storage])
    storages: tuple[str, ...] | None = None
    workloads: tuple[str, ...] | None = None
    states: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Cell:
    filesystem: str
    workload: Workload
    suite: str
    published: Workload
    storage: str = CARD

    @property
    def files_read(self) -> tuple[object, ...] | None:
        """What the cells have in common that can read one another's files; None for a cell that does more than read.

        Sizes that are published as equal differ a little once they are rounded to whole blocks.
        """
        if isinstance(self.published, FioWorkload) and self.published.only_reads:
            return self.filesystem, self.storage, self.published.size_bytes, *self.published.files_key
        return None


@dataclass(frozen=True, slots=True)
class _Boot:
    """The measurements of one boot: with `root` of one filesystem, with `scratch` of all."""

    provision: Provision
    cells: tuple[_Cell, ...]


@dataclass(frozen=True, slots=True)
class Arranged:
    """The entries of a plan in order, and notes on entries left out or adjusted."""

    entries: tuple[Planned, ...]
    left_out: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()


def plan_entries(chosen: Suite, planning: Planning) -> Arranged:
    """All entries in the order that the seed gives, with notes.

    A repetition is a boot, because the boot is the unit of replication (Kalibera and Jones, ISMM 2013). With several
    kernels it is a block, one boot of each in random order, so that drift (the card's age, the room's temperature, the
    host's load) affects all kernels alike.

    Each boot is measured first, then its workloads in random order over all filesystems. With `root` a boot has only
    one filesystem: a block has a boot of each kernel with each filesystem. With `scratch` the image decides the root
    filesystem, so the boot is measured once per kernel and repetition. With a `kernel_order` all boots of a repetition
    have the same order of workloads, which then affects both kernels alike.

    Raises ConfigError for an unknown filesystem, or one that cannot do an operation of our own suite; a published suite
    leaves that operation out.
    """
    boots, left_out, adjusted = _boots(chosen, planning)
    order = random.Random(planning.seed)  # noqa: S311 - a recorded order, not a secret
    planned: list[Planned] = []

    def add(repetition: int, kernel: str, boot: _Boot, shuffled: Sequence[_Cell]) -> None:
        cells = [*(cell for cell in boot.cells if cell.workload.is_boot), *shuffled]
        cells.sort(key=lambda cell: not cell.workload.is_off)  # it ends a boot, and begins one
        for cell in cells:
            planned.append(
                Planned(
                    number=len(planned) + 1,
                    repetition=repetition,
                    kernel=kernel,
                    filesystem=cell.filesystem,
                    workload=_only(cell.workload, planning.states),
                    suite=cell.suite,
                    provision=boot.provision,
                    storage=cell.storage,
                )
            )

    for repetition in range(1, planning.repeat + 1):
        if planning.kernel_order is not None:
            for boot in order.sample(boots, len(boots)):
                shuffled = _shuffled(boot, order)
                for kernel in planning.kernel_order[repetition - 1]:
                    add(repetition, kernel, boot, shuffled)
            continue
        block = [(kernel, boot) for kernel in planning.kernels for boot in boots]
        for kernel, boot in order.sample(block, len(block)):
            add(repetition, kernel, boot, _shuffled(boot, order))
    return Arranged(tuple(planned), left_out, adjusted)


def _only(workload: Workload, states: tuple[str, ...]) -> Workload:
    return replace(workload, only=states) if states and isinstance(workload, CrashWorkload) else workload


def _shuffled(boot: _Boot, order: random.Random) -> list[_Cell]:
    """All but the boot in random order. Those that read the same files follow each other, in random order, too."""
    groups: dict[object, list[_Cell]] = {}
    for cell in boot.cells:
        if not cell.workload.is_boot:
            groups.setdefault(cell.files_read or cell, []).append(cell)
    shuffled = order.sample(list(groups.values()), len(groups))
    return [cell for group in shuffled for cell in (order.sample(group, len(group)) if group[1:] else group)]


def check_fits(
    chosen: Suite, entries: Sequence[Planned], space: StorageSpace, factor_for: Callable[[str], float]
) -> None:
    """Raise ConfigError, with a hint of a fitting size factor, if an entry does not fit the board's storage."""
    scaled = {part.name for part in chosen.leaves if part.scaled}
    own = {part.name for part in chosen.leaves if part.file}
    worst: tuple[float, str] | None = None
    for entry in entries:
        needed = entry.workload.space_bytes
        where, scratch_bytes = space.scratch_of(entry.storage)
        room = {where: USABLE * scratch_bytes}
        if entry.provision is Provision.ROOT or entry.workload.uses_root:
            room["the root partition of the card"] = USABLE * space.root_free_bytes
        for where, free in room.items():
            if needed <= free:
                continue
            what = (
                f"{entry.suite} does not fit: {entry.workload.slug} puts {needed / MIB:.0f} MiB onto a filesystem, "
                f"and {where} has room for {free / MIB:.0f} MiB of files"
            )
            if entry.suite not in scaled | own:
                hint = "its sizes are fixed, whatever --size-factor says: it needs more room; nothing was erased"
                raise ConfigError(what, hint=hint)
            factor = (factor_for(entry.suite) if entry.suite in scaled else 1.0) * free / needed
            if worst is None or factor < worst[0]:
                worst = (factor, what)
    if worst is not None:
        factor, what = worst
        raise ConfigError(
            what, hint=f"--size-factor {_floor(factor):g} or less would fit; nothing was written or erased"
        )


def check_modules(chosen: Suite, filesystems: Sequence[str], kernel: KernelFacts, storages: Iterable[str] = ()) -> None:
    """Raise ConfigError early if the kernel lacks a module that the suite, a filesystem or a layer needs.

    So for one that does not know an option of a filesystem.
    """
    for layer in (each for storage in storages for each in stack(stack_of(storage)).layers):
        if lacking := set(layer.modules) & set(kernel.lacks):
            symbols = ", ".join(f"CONFIG_{symbol}" for symbol in layer.row.kconfig)
            raise ConfigError(
                f"the kernel {kernel.label} has no {layer.name}: it lacks {', '.join(sorted(lacking))}",
                hint=f"switch on {symbols} in the kernel's configuration, or leave the layer out; nothing was erased",
            )
    for row in map(filesystem, filesystems):
        if lacking := {*row.modules, *row.needs} & set(kernel.lacks):
            raise ConfigError(
                f"the kernel {kernel.label} has no {row.name}: it lacks {', '.join(sorted(lacking))}"
                + (f" ({row.kernels})" if row.kernels else ""),
                hint="choose a kernel that has it, or switch it on in the configuration, or leave the filesystem out",
            )
        row.check_kernel(kernel.label, kernel.release)
    for part in chosen.leaves:
        if lacking := {module for each in part.workloads for module in each.modules} & set(kernel.lacks):
            raise ConfigError(
                f"{part.name} needs modules that the kernel {kernel.label} lacks: {', '.join(sorted(lacking))}",
                hint="switch it on in the kernel's configuration, or choose another suite or part; nothing was erased",
            )


def repetition_seed(seed: int, repetition: int) -> int:
    """The seed of all random choices in the boots of one repetition, the same for all kernels.

    Each repetition has its own, because random offsets and layouts are noise, and repetitions that shared it would
    agree too well.
    """
    return random.Random(f"{seed} {repetition}").getrandbits(_SEED_BITS)  # noqa: S311 - recorded, not a secret


def boot_seed(seed: int, entry: Planned, root_filesystem: str) -> int:
    """The seed of the board's own random numbers in an entry's boot, the same for all kernels.

    What these numbers do to a figure then affects both sides of a pair alike, and each repetition has its own.
    """
    boot = f"{seed} {entry.repetition} {root_filesystem}"
    return int.from_bytes(hashlib.sha256(boot.encode()).digest()[:4])


def _boots(chosen: Suite, planning: Planning) -> tuple[list[_Boot], tuple[str, ...], tuple[str, ...]]:
    """The boots with their measurements, and the notes on entries left out and adjusted."""
    left_out: list[str] = []
    adjusted: list[str] = []
    scratch: list[_Cell] = []
    roots: dict[str, list[_Cell]] = {}
    for leaf in chosen.leaves:
        factor = planning.factor_for(leaf.name) if leaf.scaled else 1.0
        provision = _provision(leaf, planning)
        workloads = {published.scaled(factor): published for published in leaf.workloads}
        for workload, published in workloads.items():
            if planning.workloads is not None and workload.slug not in planning.workloads:
                continue
            if provision is Provision.SCRATCH and workload.is_boot:
                scratch.append(_Cell(SCRATCH_ROOT, workload, leaf.name, published))
                continue
            names = _RAW if leaf.raw else planning.filesystems
            pairs = _places(names, _storages(leaf, provision, planning), planning)
            for storage, name in _on_layers(pairs, planning):
                # A read-only root takes no files: what reads them has an image of its own on scratch.
                is_image = bool(filesystem(name).read_only) and not workload.is_boot
                where = Provision.SCRATCH if is_image else provision
                if stack_of(storage):
                    _check_layers(leaf, storage, name, workload, where)
                reason = (
                    _no_chance(workload, planning, storage)
                    or _lacking(leaf, name, workload)
                    or _no_root(name, where, leaf, planning)
                    or _needs_new(name, workload)
                    or _not_recorded(name, workload)
                )
                if reason:
                    left_out.append(f"{leaf.name}, {workload.slug}: {reason}")
                    continue
                _check_image(name, workload, planning.memory_bytes)
                device = device_of(storage)
                deep = workload.at_depth(leaf.depths[device]) if device in leaf.depths else workload
                fitting, remark = _in_memory(deep, planning.memory_bytes)
                adjusted += [f"{leaf.name}, {remark}"] if remark else []
                cells = roots.setdefault(name, []) if where is Provision.ROOT else scratch
                cells.append(_Cell(name, fitting, leaf.name, published, storage))
    boots = [_Boot(Provision.SCRATCH, tuple(scratch))] if scratch else []
    boots += [_Boot(Provision.ROOT, tuple(cells)) for cells in roots.values()]
    if not boots:
        reasons = "; ".join(dict.fromkeys(left_out))
        raise ConfigError(f"nothing is left of {chosen.name}: {reasons}", hint="choose other filesystems")
    return boots, tuple(dict.fromkeys(left_out)), tuple(dict.fromkeys(adjusted))


def _not_recorded(name: str, workload: Workload) -> str:
    """Why a filesystem has no crash states; empty if it has."""
    kind = filesystem(name)
    if not isinstance(workload, CrashWorkload) or not (kind.raw or kind.spare_area):
        return ""
    return f"{name} has no crash states: only writes of a filesystem are recorded, without spare areas"


def _storages(leaf: Suite, provision: Provision, planning: Planning) -> tuple[str, ...]:
    """The storage devices to measure on. Raises ConfigError for one that the board lacks or cannot boot from."""
    every = (CARD, *planning.further)
    for name in planning.storages or ():
        if device_of(name) not in every:
            raise ConfigError.unknown("storage device of this board", name, every)
        device, without_cache = storage_setting(base_of(name))
        if without_cache and device != CARD and not planning.further[device].device.startswith(_MMC):
            raise ConfigError(
                f"{device} is {planning.further[device].device}, and {NO_CACHE} is for eMMCs ({_MMC}0)",
                hint=f"--storage {device}, without a setting",
            )
    if provision is Provision.ROOT:
        if planning.storages not in {None, (CARD,)}:
            raise ConfigError(
                f"{leaf.name} is measured on the root filesystem, which is on the card",
                hint=f"omit --storage, or choose {'another suite' if leaf.provision else '--provision scratch'}",
            )
        return (CARD,)
    if planning.storages is not None:
        return planning.storages
    further = tuple(name for name, each in planning.further.items() if each.medium is Medium.BLOCK)
    return {
        StorageChoice.CARD: (CARD,),
        StorageChoice.FURTHER: further or (CARD,),
        StorageChoice.EVERY: (CARD, *further),
    }[leaf.where]


def _places(names: Sequence[str], storages: Sequence[str], planning: Planning) -> list[tuple[str, str]]:
    """The pairs of storage device and filesystem that go together.

    A filesystem for which no device is left goes onto those of its own kind, unless the user chose the devices. Raises
    ConfigError for a device or a filesystem that is in no pair.
    """
    kinds = {CARD: Medium.BLOCK, **{name: storage.medium for name, storage in planning.further.items()}}
    pairs = [pair for pair in product(storages, names) if kinds[device_of(pair[0])] is filesystem(pair[1]).medium]
    for name in dict.fromkeys(names):
        kind = filesystem(name).medium
        if any(pair[1] == name for pair in pairs):
            continue
        own = [each for each, medium in kinds.items() if medium is kind]
        if planning.storages is not None or not own:
            there = f"; this board's {kind}s: {', '.join(own)}" if own else ""
            raise ConfigError(
                f"{name} is made on {_with_article(kind)}, and {', '.join(storages)} is none{there}",
                hint="leave the filesystem out"
                + (f", or add --storage {own[0]}" if own else ": this board has no such storage"),
            )
        pairs += [(each, name) for each in own]
    for each in planning.storages or ():
        if not any(pair[0] == each for pair in pairs):
            kind = kinds[device_of(each)]
            fitting = [name for name in FILESYSTEMS if filesystem(name).medium is kind]
            raise ConfigError(
                f"{each} is {_with_article(kind)}, and {', '.join(names)} is made on another kind of storage",
                hint=f"choose a filesystem for it: {', '.join(fitting)}",
            )
    return pairs


def _with_article(kind: Medium) -> str:
    return f"{'an' if kind is Medium.MTD else 'a'} {kind}"


def _on_layers(pairs: Iterable[tuple[str, str]], planning: Planning) -> list[tuple[str, str]]:
    """The pairs of storage device and filesystem with each of the stacks above the device, in one order."""
    if not planning.stacks and not any(stack_of(name) for name in planning.storages or ()):
        return [*pairs]
    each = [(layered(device, above), name) for device, name in pairs for above in planning.stacks or ("",)]
    return sorted(each, key=lambda pair: pair[0])  # a run that goes on has them from its entries


def _check_layers(leaf: Suite, storage: str, filesystem_name: str, workload: Workload, provision: Provision) -> None:
    """Raise ConfigError for layers that the filesystem cannot have, or that cannot be below it."""
    if filesystem(filesystem_name).medium is Medium.MTD:
        what = f"{storage}: {filesystem_name} is on raw flash, and layers are for block devices"
        raise ConfigError(what, hint="omit --stack")
    filesystem(stack(stack_of(storage)).made_on(filesystem_name))
    if provision is Provision.ROOT:
        what = f"{leaf.name}, {workload.slug}: no layer can be below the root: {stack_of(storage)}"
        hint = "omit --stack, or choose another suite" if leaf.provision else "choose --provision scratch"
        raise ConfigError(what, hint=hint)
    if isinstance(workload, PowerLossWorkload | FlakeyWorkload | CrashWorkload):
        what = f"{workload.slug} is not measured with layers ({stack_of(storage)})"
        raise ConfigError(what, hint="omit --stack, or choose another suite")


def _in_memory(workload: Workload, memory_bytes: int) -> tuple[Workload, str]:
    """The workload with blocks in flight that fit the memory, and a note if reduced. Raises ConfigError."""
    room = _BUFFERS * memory_bytes
    if not memory_bytes or workload.buffer_bytes <= room or not isinstance(workload, FioWorkload):
        return workload, ""
    depth = int(room / workload.at_most(1).buffer_bytes)
    deepest = max(each.depth for each in workload.together)
    needed = (
        f"its buffers would take {workload.buffer_bytes / MIB:,.0f} MiB, the board has {memory_bytes / MIB:,.0f} MiB"
    )
    if not depth:
        raise ConfigError(
            f"{workload.slug} does not fit the board's memory: {needed}",
            hint="leave the part out, or choose a board with more",
        )
    return workload.at_most(depth), f"{workload.slug}: queue depth {depth} instead of {deepest}: {needed}"


def _check_image(name: str, workload: Workload, memory_bytes: int) -> None:
    """Raise ConfigError for an image that the board's memory cannot hold while it is made of its files."""
    needed = 2 * workload.space_bytes
    if filesystem(name).read_only and memory_bytes and needed > _IN_MEMORY * memory_bytes:
        raise ConfigError(
            f"{workload.slug} on {name}: the image is made in the board's memory, which has "
            f"{memory_bytes / MIB:,.0f} MiB, from {workload.space_bytes / MIB:,.0f} MiB of files",
            hint="a smaller --size-factor, or a suite of your own with smaller files; nothing was written or erased",
        )


def _provision(leaf: Suite, planning: Planning) -> Provision:
    """Where the part's filesystems live. Raises ConfigError if the user's choice differs from the part's need."""
    provision = planning.provision or leaf.provision or Provision.SCRATCH
    if leaf.provision and leaf.provision is not provision:
        raise ConfigError(
            f"{leaf.name} does not measure filesystems provisioned as {provision.value}",
            hint=f"omit --provision, or choose {leaf.provision.value}",
        )
    return provision


def _no_chance(workload: Workload, planning: Planning, storage: str) -> str | None:
    """Why a cut of the power tells nothing: in guest time all moments in which the board waits are equal."""
    if workload.cuts_power and planning.guest_time:
        return "a board in guest time has no random moment, its time stands still while it waits: try env/virtual.yaml"
    if workload.is_off and planning.guest_time:
        return "without power no time passes on a board in guest time: try env/virtual.yaml"
    if workload.cuts_power and (device := planning.further.get(device_of(storage))) and device.forgets:
        return f"{storage} is simulated in the board's memory, and empty after each power-on"
    return None


def _needs_new(name: str, workload: Workload) -> str | None:
    """Why an aged filesystem cannot be measured so."""
    if not filesystem(name).age or not isinstance(workload, TimedWorkload):
        return None
    if workload.operation is TimedKind.MKFS or workload.fill:
        return f"{title_of(name)} has been used, and this begins with a new filesystem"
    return None


def _lacking(leaf: Suite, name: str, workload: Workload) -> str | None:
    """Why the filesystem cannot do the operation. Raises ConfigError for a suite of ours."""
    kind = filesystem(name)
    lacks = kind.lacks
    if kind.read_only and not workload.reads_an_image:
        if leaf.source:
            return f"{name} is read-only"
        raise ConfigError(
            f"{name} is read-only, and suite {leaf.name!r} measures {workload.slug}",
            hint="--suite root-image measures images; --workload takes what only reads: --workload read,randread",
        )
    if workload.operation.value not in lacks:
        return None
    if not leaf.source:
        raise ConfigError(
            f"{name} has no {workload.operation.value}, which suite {leaf.name!r} measures",
            hint="leave the filesystem out, or choose another suite",
        )
    return f"{name} has no {workload.operation.value}"


def _no_root(name: str, provision: Provision, leaf: Suite, planning: Planning) -> str | None:
    """Why it cannot be the root filesystem. Raises ConfigError if the user asked for it with --provision."""
    plain = content_of(name).partition(":")[0]
    variants = plain in planning.root_filesystems and filesystem(name).is_image_of_disk
    if provision is Provision.SCRATCH or name in planning.root_filesystems or variants:
        return None
    if leaf.provision is None:
        raise ConfigError(
            f"no card image can have {name!r} as its root",
            hint=f"use --provision scratch, or one of {', '.join(planning.root_filesystems)}; "
            "options of a root are the image recipe's",
        )
    return f"no card image can have {name} as its root"


def _floor(factor: float) -> float:
    """The factor with two digits, rounded down."""
    text = f"{factor:.1e}"
    mantissa, exponent = text.split("e")
    rounded = float(text)
    return rounded if rounded <= factor else (float(mantissa) - 0.1) * 10.0 ** int(exponent)
