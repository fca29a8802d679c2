"""Cells of tables, published or measured, and the figures in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fsjoule.statistics.spread import Proportion, Spread

Found = Spread | Proportion
"""The content of a cell: repetitions of a figure, or a share of iterations."""


class Quantity(StrEnum):
    THROUGHPUT = "throughput"
    IOPS = "IOPS"
    POWER = "power"
    POWER_SD = "SD of power over samples"
    ENERGY = "energy"
    LATENCY_MAX = "maximum latency"
    PER_CPU_PERCENT = "operations per CPU per cent"
    TIME = "time"
    UNMOUNT = "unmount"
    TOGETHER = "time with unmount"
    REAL = "real time"
    SYS = "system time"
    USER = "user time"
    TOTAL = "total"
    USED = "used when empty"
    KERNEL_THREADS = "kernel threads"
    OPERATION_ENERGY = "energy of the operation"
    VARIATION = "maximum variation"
    BUS = "bus busy"
    CPU = "CPU"
    PER_CPU_SECOND = "per CPU second"
    PER_JOULE = "per joule"
    # Shares of a hazard's iterations.
    LOST = "a file lost or wrong"
    SILENT = "damage that goes unnoticed"
    DETECTED = "damage that is noticed"
    UNMOUNTABLE = "not mountable for writing"

    @property
    def unit(self) -> str:
        """The printed unit; counts have none."""
        return _UNITS.get(self, "")


_UNITS: Final = {
    Quantity.THROUGHPUT: "MiB/s",
    Quantity.POWER: "W",
    Quantity.POWER_SD: "W",
    Quantity.ENERGY: "mJ/MiB",
    Quantity.LATENCY_MAX: "ms",
    Quantity.TIME: "s",
    Quantity.UNMOUNT: "s",
    Quantity.TOGETHER: "s",
    Quantity.REAL: "ms",
    Quantity.SYS: "ms",
    Quantity.USER: "ms",
    Quantity.TOTAL: "MiB",
    Quantity.USED: "MiB",
    Quantity.OPERATION_ENERGY: "mJ",
    Quantity.VARIATION: "%",
    Quantity.BUS: "%",
    Quantity.CPU: "%",
    Quantity.PER_CPU_SECOND: "MiB/s",
    Quantity.PER_JOULE: "MiB/J",
}


@dataclass(frozen=True, slots=True)
class FigureCell:
    """The place of a figure.

    `part` is the suite's part (`mkfs`), empty for a suite without parts. `workload` is the publication's name: a slug
    (`randread-16k`), an operation (`fsck`), a pattern.
    """

    part: str
    filesystem: str
    workload: str
    quantity: Quantity


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """A published cell: `printed` is the value as printed, `sd` its deviation over `n` repetitions on `hardware`."""

    cell: FigureCell
    value: float
    printed: str
    sd: float | None = None
    n: int = 1
    hardware: str = ""

    @property
    def decimals(self) -> int:
        return len(self.printed.partition(".")[2])

    @property
    def spread(self) -> Spread:
        return Spread(self.n, self.value, self.sd)


@dataclass(frozen=True, slots=True)
class CellFigures:
    """Figures by cell, of one kernel on one storage device, or as published for one machine.

    `without` are pairs of a part and a filesystem that cannot do the part's operation, while others can.
    """

    found: Mapping[FigureCell, Found]
    without: frozenset[tuple[str, str]] = field(default_factory=frozenset[tuple[str, str]])

    def __getitem__(self, cell: FigureCell) -> Found | None:
        return self.found.get(cell)
