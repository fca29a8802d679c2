"""Suites as data: what is measured, without saying on which filesystem, kernel or board."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.filesystems import filesystem
from fsjoule.model import KIB, Planned, Provision, TimedKind, Workload
from fsjoule.suites import energy_emmc, operations, quick


@dataclass(frozen=True, slots=True)
class Suite:
    """A named list of workloads. `source` names the publication that it repeats, empty for our own."""

    name: str
    title: str
    workloads: tuple[Workload, ...]
    source: str = ""


SUITES: Final[dict[str, Suite]] = {
    "quick": Suite("quick", quick.TITLE, quick.WORKLOADS),
    "operations": Suite("operations", operations.TITLE, operations.WORKLOADS),
    "energy-emmc-2025": Suite("energy-emmc-2025", energy_emmc.TITLE, energy_emmc.WORKLOADS, energy_emmc.SOURCE),
}


def suite(name: str) -> Suite:
    """The suite of that name. Raises ConfigError with the choices."""
    try:
        return SUITES[name]
    except KeyError:
        raise ConfigError.unknown("suite", name, SUITES) from None


def scaled(workload: Workload, factor: float) -> Workload:
    """The workload with its size multiplied, in whole blocks and never less than 16 of them."""
    if workload.kind == "timed":
        return replace(workload, size_bytes=round(workload.size_bytes * factor / KIB) * KIB)
    blocks = max(16, round(workload.size_bytes * factor / workload.block_size_bytes))
    return replace(workload, size_bytes=blocks * workload.block_size_bytes)


def plan_entries(
    chosen: Suite,
    filesystems: tuple[str, ...],
    kernels: tuple[str, ...],
    *,
    provision: Provision,
    repeat: int,
    seed: int,
    size_factor: float,
    kernel_order: Sequence[Sequence[str]] | None = None,
) -> tuple[Planned, ...]:
    """Everything to measure, in the order that the seed gives.

    A repetition is a boot, because the boot is the unit of replication (Kalibera and Jones, ISMM 2013). With several
    kernels it is a block, one boot of each in random order, so that whatever drifts (the card's age, the room's
    temperature, the host's load) meets all kernels alike.

    A boot is measured first, then all its workloads in random order over all filesystems. With `root` a boot holds one
    filesystem only: a block has a boot of each kernel with each filesystem. With `scratch` the root filesystem is that
    of the image, so that the boot is measured once a kernel and repetition. Sizes of published suites are multiplied by
    `size_factor`; ours were made to fit.

    `kernel_order` has the kernels of each repetition in the order in which they are to boot, as a comparison of two
    wants them. All boots of such a repetition then measure their workloads in one order: what an order does to a
    figure meets both kernels alike.

    Raises ConfigError for an unknown filesystem or one without what the suite needs.
    """
    for name in filesystems:
        lacks = filesystem(name).lacks
        needs = {w.operation.value for w in chosen.workloads if w.kind == "timed"}
        if lacks & needs:
            raise ConfigError(
                f"{name} has no {', '.join(sorted(lacks & needs))}, which suite {chosen.name!r} measures",
                hint="leave the filesystem out, or choose another suite",
            )
    order = random.Random(seed)  # noqa: S311 - a recorded order, not a secret
    workloads = [scaled(w, size_factor) if chosen.source else w for w in chosen.workloads]
    boots = [w for w in workloads if w.kind == "timed" and w.operation is TimedKind.BOOT]
    others = [w for w in workloads if w not in boots]
    # What each boot measures: with `root` one filesystem, with `scratch` all of them.
    groups = [(name,) for name in filesystems] if provision is Provision.ROOT else [filesystems]
    wanted: list[tuple[int, str, str, Workload]] = []

    def boot(repetition: int, kernel: str, group: tuple[str, ...], cells: Sequence[tuple[str, Workload]]) -> None:
        boot_filesystem = group[0] if provision is Provision.ROOT else SCRATCH_ROOT
        wanted.extend((repetition, kernel, boot_filesystem, workload) for workload in boots)
        wanted.extend((repetition, kernel, *cell) for cell in cells)

    for repetition in range(1, repeat + 1):
        if kernel_order is not None:
            for group in order.sample(groups, len(groups)):
                cells = _shuffled(order, group, others)
                for kernel in kernel_order[repetition - 1]:
                    boot(repetition, kernel, group, cells)
            continue
        block = [(kernel, group) for kernel in kernels for group in groups]
        for kernel, group in order.sample(block, len(block)):
            boot(repetition, kernel, group, _shuffled(order, group, others))
    return tuple(Planned(number, *entry) for number, entry in enumerate(wanted, start=1))


def repetition_seed(seed: int, repetition: int) -> int:
    """The seed of all that chance decides in the boots of one repetition, of all kernels alike.

    Each repetition has its own: what random offsets and layouts do to a figure is noise, and repetitions that shared it
    would agree with each other for no good reason.
    """
    return random.Random(f"{seed} {repetition}").getrandbits(_SEED_BITS)  # noqa: S311 - recorded, not a secret


def _shuffled(
    order: random.Random, filesystems: Sequence[str], workloads: Sequence[Workload]
) -> list[tuple[str, Workload]]:
    cells = [(name, workload) for name in filesystems for workload in workloads]
    return order.sample(cells, len(cells))


# fio takes 64 bits; 31 are a positive number everywhere.
_SEED_BITS: Final = 31
# With `scratch`, the card's root partition, which boots and holds the tools, has this filesystem.
SCRATCH_ROOT: Final = "ext4"
