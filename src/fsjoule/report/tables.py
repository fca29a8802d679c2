"""The tables of a run as columns and cells, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Protocol, TypeVar

from fsjoule.model.operation import size_label
from fsjoule.report.numbers import decimals_for, mean_text, ratio_text, sd_text, share_text
from fsjoule.report.summary import FioRow, Projected, Summary, TimedRow
from fsjoule.report.table import Cell, Column, Filled, Table, assembled
from fsjoule.statistics.spread import Spread


class Counted(Protocol):
    @property
    def valid(self) -> int: ...


R = TypeVar("R", bound=Counted)
S = TypeVar("S", FioRow, TimedRow)
# Before a figure that fewer than n repetitions have; the table's footnote explains it.
FEWER: Final = "†"
FOOTNOTE: Final = (
    f"mean ± standard deviation of n valid repetitions; {FEWER} some of them lack this figure; net: less idle power"
)

# The name of columns of published figures.
PUBLISHED: Final = "published"


_PART: Final = Column("part", is_figure=False, head=True)
_OPERATION: Final = Column("operation", is_figure=False, head=True)
_FILESYSTEM: Final = Column("filesystem", is_figure=False, head=True)
_STORAGE: Final = Column("storage", is_figure=False, head=True)
_KERNEL: Final = Column("kernel", is_figure=False, head=True)
_N: Final = Column("n", head=True)


def fio_table(summary: Summary) -> Table:
    """Throughput and energy; of a board in guest time with the projected card, as a device in the field has them."""
    rows = summary.fio
    written = figures(rows, Column("write ampl.", optional=True), lambda row: row.write_amplification, most=2)
    if any(row.projected for row in rows):
        columns = [
            figures(rows, Column("throughput", "MiB/s"), lambda row: row.with_card[0]),
            figures(rows, Column("energy", "mJ/MiB"), lambda row: row.with_card[1]),
            written,
        ]
        return _series_table("Throughput and energy with the card", summary, rows, columns)
    columns = [
        figures(rows, Column("throughput", "MiB/s"), lambda row: row.throughput_mib_per_s),
        figures(rows, Column("IOPS", optional=True), lambda row: row.iops, most=0),
        figures(rows, Column("power", "W", optional=True), lambda row: row.power_w),
        figures(rows, Column("energy", "mJ/MiB"), lambda row: row.energy_mj_per_mib),
        figures(rows, Column("net", "mJ/MiB", optional=True), lambda row: row.energy_net_mj_per_mib),
        written,
    ]
    return _series_table("Throughput and energy", summary, rows, columns)


def fio_footnote(summary: Summary) -> str:
    """How to read the fio table: deviations, sizes of files, the meter's uncertainty."""
    sizes = sorted({row.workload.size_bytes for row in summary.fio})
    factors = sorted(set(summary.size_factors.values()))
    factor = f" (size factor {', '.join(f'{each:g}' for each in factors)})" if factors else ""
    notes = [FOOTNOTE, f"files of {', '.join(map(size_label, sizes))}{factor}"]
    shares = [
        row.energy_uncertainty_mj_per_mib / row.energy_mj_per_mib.mean
        for row in summary.fio
        if row.energy_uncertainty_mj_per_mib is not None and row.energy_mj_per_mib and row.energy_mj_per_mib.mean
    ]
    notes += [f"the meter's own uncertainty is up to {100 * max(shares):.1f} % (k=1)"] if shares else []
    return "; ".join(notes)


def timed_table(summary: Summary) -> Table:
    rows = summary.timed
    if any(row.projected_s for row in rows):
        columns = [
            figures(rows, Column("time", "s"), lambda row: row.with_card[0]),
            figures(rows, Column("energy", "mJ"), lambda row: row.with_card[1], most=1),
            figures(rows, Column("kernel's path", "s", optional=True), lambda row: row.duration_s),
            figures(rows, Column("its energy", "mJ", optional=True), lambda row: row.energy_mj, most=1),
        ]
        return _series_table("Timed operations with the card", summary, rows, columns)
    columns = [
        figures(rows, Column("time", "s"), lambda row: row.duration_s),
        figures(rows, Column("power", "W", optional=True), lambda row: row.power_w),
        figures(rows, Column("energy", "mJ"), lambda row: row.energy_mj, most=1),
        figures(rows, Column("net", "mJ", optional=True), lambda row: row.energy_net_mj, most=1),
    ]
    return _series_table("Timed operations", summary, rows, columns)


def published_table(summary: Summary) -> Table | None:
    """Measured and published throughput and energy with ratios; None without a published figure."""
    rows = [row for row in summary.fio if row.published is not None]
    if not rows:
        return None
    with_card = " with card" if any(row.projected for row in rows) else ""
    throughput = figures(rows, Column(f"throughput{with_card}", "MiB/s"), lambda row: row.with_card[0])
    energy = figures(rows, Column(f"energy{with_card}", "mJ/MiB"), lambda row: row.with_card[1])
    published = [row.published for row in rows if row.published is not None]
    columns = [
        throughput,
        (
            Column(PUBLISHED, "MiB/s", joins=True, optional=True),
            [Cell(f"{figure.throughput_mib_per_s:.1f}") for figure in published],
        ),
        (Column("ratio", joins=True), [Cell(ratio_text(row.throughput_ratio)) for row in rows]),
        energy,
        (
            Column(PUBLISHED, "mJ/MiB", joins=True, optional=True),
            [Cell(f"{figure.energy_mj_per_mib:.2f}") for figure in published],
        ),
        (Column("ratio", joins=True), [Cell(ratio_text(row.energy_ratio)) for row in rows]),
    ]
    return _series_table("Beside the published figures", summary, rows, columns, with_n=False)


def kernel_tables(summary: Summary) -> list[Table]:
    """For a run of several kernels, one table per figure with the kernels side by side; else empty."""
    if not summary.several_kernels:
        return []
    tables = [
        _kernel_table("Throughput by kernel, MiB/s", summary, summary.fio, lambda row: row.throughput_mib_per_s),
        _kernel_table("Energy by kernel, mJ/MiB", summary, summary.fio, lambda row: row.energy_mj_per_mib),
        _kernel_table("CPU time by kernel, s/MiB", summary, summary.fio, lambda row: row.cpu_s_per_mib, most=4),
        _kernel_table("Time by kernel, s", summary, summary.timed, lambda row: row.duration_s),
        _kernel_table("Energy by kernel, mJ", summary, summary.timed, lambda row: row.energy_mj, most=1),
    ]
    return [table for table in tables if table.rows]


def _kernel_table(
    title: str, summary: Summary, rows: Sequence[S], get: Callable[[S], Spread | None], *, most: int = 3
) -> Table:
    """A row per operation and filesystem, a column per kernel; all figures have the same decimals."""
    found = {(row.workload.label, row.label, row.kernel): row for row in rows if get(row) is not None}
    series = list(dict.fromkeys((operation, label) for operation, label, _ in found))
    decimals = decimals_for([get(row) for row in found.values()], most=most)
    body: list[tuple[Cell, ...]] = []
    for operation, label in series:
        cells: list[Cell] = []
        for kernel in summary.run.plan.kernels:
            row = found.get((operation, label, kernel))
            spread = None if row is None else get(row)
            fewer = FEWER if row is not None and spread is not None and spread.n != row.valid else ""
            cells.append(Cell(fewer + mean_text(spread, decimals), sd_text(spread, decimals)))
        body.append((Cell(operation), Cell(label), *cells))
    breaks = frozenset(i for i, (above, below) in enumerate(pairwise(series), start=1) if above[0] != below[0])
    columns = (_OPERATION, _FILESYSTEM, *(Column(kernel) for kernel in summary.run.plan.kernels))
    return Table(title, summary.simulated, columns, tuple(body), breaks)


def projected_table(summary: Summary) -> Table | None:
    """The measured kernel's path and the projected card; None without a projection."""
    rows = [row for row in summary.fio if row.projected is not None]
    if not rows:
        return None

    def projected(column: Column, get: Callable[[Projected], Spread | None]) -> tuple[Column, list[Cell]]:
        return figures(rows, column, lambda row: get(row.projected) if row.projected else None)

    columns = [
        figures(rows, Column("kernel's path", "MiB/s"), lambda row: row.throughput_mib_per_s),
        figures(rows, Column("its CPU", "s/MiB", optional=True), lambda row: row.cpu_s_per_mib, most=5),
        figures(rows, Column("its power", "W", optional=True), lambda row: row.power_w),
        figures(rows, Column("its energy", "mJ/MiB", optional=True), lambda row: row.energy_mj_per_mib),
        figures(rows, Column("net", "mJ/MiB", optional=True), lambda row: row.energy_net_mj_per_mib),
        projected(Column("requests", "1/MiB", optional=True), lambda p: p.requests_per_mib),
        projected(Column("card", "MiB/s", optional=True), lambda p: p.card_mib_per_s),
        projected(Column("card", "mJ/MiB", optional=True), lambda p: p.card_mj_per_mib),
        projected(Column("with card", "MiB/s"), lambda p: p.both_mib_per_s),
        projected(Column("with card", "mJ/MiB"), lambda p: p.both_mj_per_mib),
    ]
    return _series_table("The kernel's path alone, and the card as projected", summary, rows, columns)


def projected_footnote(summary: Summary) -> str:
    cards = sorted({row.projected.card for row in summary.fio if row.projected})
    return (
        f"measured: the kernel's path, on a board whose card takes no time. Projected from the requests that the board "
        f"counted: the time and energy of the card {', '.join(cards)} (labgrid/virtual), and both one after the other"
    )


def time_table(summary: Summary) -> Table:
    rows = [(Cell(p.name), Cell(f"{p.seconds:.1f}"), Cell(share_text(p.share))) for p in summary.phases]
    columns = (Column("phase", is_figure=False, head=True), Column("time", "s"), Column("share"))
    return Table("Where the time went", simulated=False, columns=columns, rows=tuple(rows))


def figures(rows: Sequence[R], column: Column, get: Callable[[R], Spread | None], *, most: int = 3) -> Filled:
    """A column of spreads with equal decimals; a mark shows figures that some repetitions lack."""
    spreads = [get(row) for row in rows]
    decimals = decimals_for(spreads, most=most)
    cells: list[Cell] = []
    for row, spread in zip(rows, spreads, strict=True):
        fewer = FEWER if spread is not None and spread.n != row.valid else ""
        cells.append(Cell(fewer + mean_text(spread, decimals), sd_text(spread, decimals)))
    return column, cells


def _series_table(
    title: str,
    summary: Summary,
    rows: Sequence[FioRow] | Sequence[TimedRow],
    columns: Sequence[Filled],
    *,
    with_n: bool = True,
) -> Table:
    operations = [row.workload.label for row in rows]
    heads = [(_OPERATION, [Cell(name) for name in operations]), (_FILESYSTEM, [Cell(row.label) for row in rows])]
    if summary.several_parts:
        heads.insert(0, (_PART, [Cell(row.series.suite.split("/")[-1]) for row in rows]))
    if summary.several_storages:
        heads.append((_STORAGE, [Cell(row.series.storage) for row in rows]))
    if summary.several_kernels:
        heads.append((_KERNEL, [Cell(row.kernel) for row in rows]))
    if with_n:
        heads.append(repetitions(rows))
    return assembled(title, [*heads, *columns], simulated=summary.simulated, groups=operations)


class Repeated(Counted, Protocol):
    @property
    def invalid(self) -> int: ...


def repetitions(rows: Sequence[Repeated]) -> Filled:
    """The column of valid repetitions, `4 of 5` if some are invalid."""
    counts = [f"{row.valid} of {row.valid + row.invalid}" if row.invalid else str(row.valid) for row in rows]
    return _N, [Cell(count) for count in counts]
