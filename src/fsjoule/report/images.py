"""Read-only images of a run: their size beside what a boot, a mount and a random read cost, and which none beats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.model import FioWorkload, IoPattern, TimedKind, TimedWorkload
from fsjoule.model.metrics import Metric
from fsjoule.report.summary import Summary, SummaryRow
from fsjoule.report.table import Cell, Column, Filled, Table, Tone, assembled
from fsjoule.report.tables import figures
from fsjoule.statistics.spread import Spread
from fsjoule.verdicts.filesystems import beaten_by

# Two to choose from.
_FEWEST: Final = 2
FOOTNOTE: Final = (
    "An image that no other beats: none is as small with less energy for a boot. Means are compared, whatever their "
    "deviations. A mount and a random read are of an image of its own on scratch, with the board's programs in it; "
    "a boot begins once the root is mounted"
)


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One image as a root: figures of its boot, and of what was read of an image with the same options.

    `beaten_by` is one that is as small and needs as little energy for a boot, and less of one; empty if none is.
    """

    label: str
    valid: int
    invalid: int
    boot: Mapping[Metric, Spread]
    mount_s: Spread | None
    read_mib_per_s: Spread | None
    read_mj_per_mib: Spread | None
    beaten_by: str = ""

    @property
    def size_mib(self) -> float:
        return self.boot[Metric.SIZE].mean

    @property
    def boot_mj(self) -> float:
        return self.boot[Metric.OPERATION_ENERGY].mean


def image_rows(summary: Summary) -> list[ImageRow]:
    """The images that booted with their energy measured, the smallest first; empty if there are no two."""
    rows: list[ImageRow] = []
    for row in summary.timed:
        if not row.workload.is_boot or not {Metric.SIZE, Metric.OPERATION_ENERGY} <= row.figures.keys():
            continue
        mount = _beside(summary.timed, row, TimedKind.MOUNT)
        read = _beside(summary.fio, row, IoPattern.RANDREAD)
        rows.append(
            ImageRow(
                f"{row.label}, {row.kernel}" if summary.several_kernels else row.label,
                row.valid,
                row.invalid,
                row.figures,
                mount and mount.with_card(Metric.DURATION),
                read and read.with_card(Metric.THROUGHPUT),
                read and read.with_card(Metric.ENERGY),
            )
        )
    if len(rows) < _FEWEST:
        return []
    beaten = beaten_by({row.label: (row.size_mib, row.boot_mj) for row in rows})
    named = (replace(row, beaten_by=beaten[row.label]) for row in rows)
    return sorted(named, key=lambda row: (row.size_mib, row.boot_mj))


def _beside(
    rows: tuple[SummaryRow[FioWorkload], ...] | tuple[SummaryRow[TimedWorkload], ...],
    boot: SummaryRow[TimedWorkload],
    operation: IoPattern | TimedKind,
) -> SummaryRow[FioWorkload] | SummaryRow[TimedWorkload] | None:
    """The first row with this operation on the same filesystem and kernel."""
    same = (row for row in rows if row.series.filesystem == boot.series.filesystem and row.kernel == boot.kernel)
    return next((row for row in same if row.workload.operation is operation), None)


def images_table(summary: Summary) -> Table | None:
    """The images, and which none beats; None if the run has no two."""
    rows = image_rows(summary)
    if not rows:
        return None
    columns: list[Filled] = [
        (Column("image", is_figure=False, head=True), [Cell(row.label) for row in rows]),
        figures(rows, Column("size", "MiB"), lambda row: row.boot[Metric.SIZE], most=2),
        figures(rows, Column("boot", "mJ"), lambda row: row.boot[Metric.OPERATION_ENERGY], most=1),
        figures(rows, Column("boot", "s", optional=True), lambda row: row.boot.get(Metric.DURATION)),
        figures(rows, Column("mount", "s", optional=True), lambda row: row.mount_s),
        figures(rows, Column("random read", "MiB/s"), lambda row: row.read_mib_per_s),
        figures(rows, Column("random read", "mJ/MiB", optional=True), lambda row: row.read_mj_per_mib),
        (Column("beaten", is_figure=False), [_verdict(row) for row in rows]),
    ]
    return assembled("Images", columns, simulated=summary.simulated, groups=[""] * len(rows))


def _verdict(row: ImageRow) -> Cell:
    return Cell(f"{row.beaten_by} beats it") if row.beaten_by else Cell("none beats it", tone=Tone.GOOD)
