"""The tables of a run as columns and cells, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Protocol, TypeVar

from fsjoule.model import FioWorkload, HeldWorkload, ImportedWorkload, OperationWorkload
from fsjoule.model.metrics import Metric, Use, fio_metrics, held_metrics, timed_metrics
from fsjoule.model.operation import size_label
from fsjoule.report.numbers import ABSENT, decimals_for, mean_text, ratio_text, sd_text, share_text
from fsjoule.report.summary import Projected, Summary, SummaryRow
from fsjoule.report.table import Cell, Column, Filled, Table, assembled
from fsjoule.statistics.spread import Spread


class Repeated(Protocol):
    @property
    def valid(self) -> int: ...
    @property
    def invalid(self) -> int: ...


R = TypeVar("R", bound=Repeated)
Rows = Sequence[SummaryRow[FioWorkload]] | Sequence[SummaryRow[OperationWorkload]] | Sequence[SummaryRow[HeldWorkload]]
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
    if any(row.projected for row in rows):
        columns = [
            _with_card(rows, Metric.THROUGHPUT),
            _with_card(rows, Metric.ENERGY),
            _measured(rows, Metric.WRITE_AMPLIFICATION, optional=True),
            *_seldom_columns(rows),
        ]
        return _series_table("Throughput and energy with the card", summary, rows, columns)
    return _series_table("Throughput and energy", summary, rows, _page_columns(rows, fio_metrics))


def fio_footnote(summary: Summary) -> str:
    """How to read the fio table: deviations, sizes of files, the meter's uncertainty."""
    sizes = sorted({row.workload.size_bytes for row in summary.fio})
    factors = sorted(set(summary.size_factors.values()))
    factor = f" (size factor {', '.join(f'{each:g}' for each in factors)})" if factors else ""
    notes = [FOOTNOTE, f"files of {', '.join(map(size_label, sizes))}{factor}"]
    shares = [
        row.uncertainties[Metric.ENERGY] / row.figures[Metric.ENERGY].mean
        for row in summary.fio
        if Metric.ENERGY in row.uncertainties and row.figures[Metric.ENERGY].mean
    ]
    notes += [f"the meter's own uncertainty is up to {100 * max(shares):.1f} % (k=1)"] if shares else []
    return "; ".join(notes)


def timed_table(summary: Summary) -> Table:
    rows = summary.timed
    if any(row.projected for row in rows):
        columns = [
            _with_card(rows, Metric.DURATION),
            _with_card(rows, Metric.OPERATION_ENERGY),
            _measured(rows, Metric.DURATION, "kernel's path", optional=True),
            _measured(rows, Metric.OPERATION_ENERGY, "its energy", optional=True),
            *_seldom_columns(rows),
        ]
        return _series_table("Timed operations with the card", summary, rows, columns)
    return _series_table("Timed operations", summary, rows, _page_columns(rows, timed_metrics) + _of_others(rows))


def held_table(summary: Summary) -> Table | None:
    """The states that the board was held in; None without one."""
    rows = summary.held
    if not rows:
        return None
    power, u = Metric.STATE_POWER, [row.uncertainties.get(Metric.STATE_POWER) for row in rows]
    meter = (Column("meter's ±", "W", optional=True), [Cell(ABSENT if each is None else f"{each:.4f}") for each in u])
    return _series_table("States", summary, rows, [_measured(rows, power), meter, *_seldom_columns(rows)])


def _of_others(rows: Rows) -> list[tuple[Column, list[Cell]]]:
    """The further figures of what was imported."""
    usual = timed_metrics(Use.PAGE)
    stated = {each for row in rows if isinstance(row.workload, ImportedWorkload) for each in row.figures}
    return [_measured(rows, metric, optional=True) for metric in Metric if metric in stated and metric not in usual]


def published_table(summary: Summary) -> Table | None:
    """Measured and published throughput and energy with ratios; None without a published figure."""
    rows = [row for row in summary.fio if row.published is not None]
    if not rows:
        return None
    with_card = " with card" if any(row.projected for row in rows) else ""
    published = [row.published for row in rows if row.published is not None]
    columns = [
        _with_card(rows, Metric.THROUGHPUT, f"throughput{with_card}"),
        (
            Column(PUBLISHED, "MiB/s", joins=True, optional=True),
            [Cell(f"{figure.throughput_mib_per_s:.1f}") for figure in published],
        ),
        (Column("ratio", joins=True), [Cell(ratio_text(row.throughput_ratio)) for row in rows]),
        _with_card(rows, Metric.ENERGY, f"energy{with_card}"),
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
        _kernel_table(summary, rows, metric)
        for rows, metrics in ((summary.fio, fio_metrics), (summary.timed, timed_metrics), (summary.held, held_metrics))
        for metric in metrics(Use.KERNELS)
    ]
    return [table for table in tables if table.rows]


def _kernel_table(summary: Summary, rows: Rows, metric: Metric) -> Table:
    """A row per operation and filesystem, a column per kernel; all figures have the same decimals."""
    title = f"{metric.row.short[0].upper()}{metric.row.short[1:]} by kernel, {metric.unit}"
    found = {(row.workload.label, row.label, row.kernel): row for row in rows if metric in row.figures}
    series = list(dict.fromkeys((operation, label) for operation, label, _ in found))
    decimals = decimals_for([row.figures[metric] for row in found.values()], most=metric.row.most_decimals)
    body: list[tuple[Cell, ...]] = []
    for operation, label in series:
        cells: list[Cell] = []
        for kernel in summary.run.plan.kernels:
            row = found.get((operation, label, kernel))
            spread = row and row.figures[metric]
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
        _measured(rows, Metric.THROUGHPUT, "kernel's path"),
        figures(rows, Column("its CPU", "s/MiB", optional=True), lambda row: row.figures.get(Metric.CPU), most=5),
        _measured(rows, Metric.POWER, "its power", optional=True),
        _measured(rows, Metric.ENERGY, "its energy", optional=True),
        _measured(rows, Metric.NET_ENERGY, optional=True),
        projected(Column("requests", "1/MiB", optional=True), lambda p: p.requests_per_mib),
        projected(Column("card", "MiB/s", optional=True), lambda p: p.card_mib_per_s),
        projected(Column("card", "mJ/MiB", optional=True), lambda p: p.card_mj_per_mib),
        projected(Column("with card", "MiB/s"), lambda p: p.figures.get(Metric.THROUGHPUT)),
        projected(Column("with card", "mJ/MiB"), lambda p: p.figures.get(Metric.ENERGY)),
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


def _page_columns(rows: Rows, metrics: Callable[[Use], tuple[Metric, ...]]) -> list[Filled]:
    """The columns of a run's table; a narrow terminal leaves out what is no main figure."""
    usual = [metric for metric in metrics(Use.PAGE) if not metric.row.seldom]
    columns = [_measured(rows, metric, optional=metric not in metrics(Use.MAIN)) for metric in usual]
    return columns + _seldom_columns(rows)


def _seldom_columns(rows: Rows) -> list[Filled]:
    """The figures that only some measurements have, if these have them: the size of an image."""
    there = {metric for row in rows for metric in row.figures if metric.row.seldom}
    shown = {*fio_metrics(Use.PAGE), *timed_metrics(Use.PAGE), *held_metrics(Use.PAGE)}
    return [_measured(rows, metric, optional=True) for metric in Metric if metric in there & shown]


def _measured(rows: Rows, metric: Metric, name: str = "", *, optional: bool = False) -> Filled:
    column = Column(name or metric.row.short, metric.row.printed_unit, optional=optional)
    return figures(rows, column, lambda row: row.figures.get(metric), most=metric.row.most_decimals)


def _with_card(rows: Rows, metric: Metric, name: str = "") -> Filled:
    column = Column(name or metric.row.short, metric.unit)
    return figures(rows, column, lambda row: row.with_card(metric), most=metric.row.most_decimals)


def _series_table(
    title: str,
    summary: Summary,
    rows: Rows,
    columns: Sequence[Filled],
    *,
    with_n: bool = True,
) -> Table:
    operations = [row.workload.label for row in rows]
    heads = [(_OPERATION, [Cell(name) for name in operations]), (_FILESYSTEM, [Cell(row.label) for row in rows])]
    if summary.several_parts:
        heads.insert(0, (_PART, [Cell(row.series.suite.split("/")[-1]) for row in rows]))
    if summary.several_storages:
        heads.append((_STORAGE, [Cell(row.series.device) for row in rows]))
    if summary.several_kernels:
        heads.append((_KERNEL, [Cell(row.kernel) for row in rows]))
    if with_n:
        heads.append(repetitions(rows))
    return assembled(title, [*heads, *columns], simulated=summary.simulated, groups=operations)


def repetitions(rows: Sequence[Repeated]) -> Filled:
    """The column of valid repetitions, `4 of 5` if some are invalid."""
    counts = [f"{row.valid} of {row.valid + row.invalid}" if row.invalid else str(row.valid) for row in rows]
    return _N, [Cell(count) for count in counts]
