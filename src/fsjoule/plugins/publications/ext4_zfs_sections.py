"""The three tests of "Comparing Ext4 and ZFS for Onboard Data Processing", and its figures beside this run's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Final

from fsjoule.model import size_label
from fsjoule.report.numbers import ABSENT, decimals_for, mean_text, ratio_text, sd_text
from fsjoule.report.publications.view import (
    Drawing,
    SuiteSection,
    View,
    drawn_by,
    heads,
    jobs_of,
    label_of,
    lines,
    measured,
    pattern_of,
    pivot,
    table,
    words,
)
from fsjoule.report.table import Cell, Column, Filled, Table
from fsjoule.report.tables import PUBLISHED
from fsjoule.statistics.spread import Spread
from fsjoule.suites.published.catalogue import PUBLICATIONS
from fsjoule.suites.published.cells import PublishedFigure, Quantity
from fsjoule.suites.published.measured import RepetitionRow, measured_figures


def sections(view: View) -> list[SuiteSection]:
    """A section per planned test, and the published figures beside this run's."""
    found = [_TESTS[part](view, view.part(part)) for part in view.suite.parts if part in _TESTS]
    published = _published(view)
    if published.rows:
        notes = ("here: the greatest figure of all workloads that the published figure may mean", view.footnote(""))
        found.append(SuiteSection("Beside the published figures", "published", (published,), (), notes))
    return found


def _block_bytes(row: RepetitionRow) -> int:
    return row.workload.block_size_bytes


def _file_bytes(row: RepetitionRow) -> int:
    return row.workload.size_bytes


def _size_name(size_bytes: float) -> str:
    return size_label(round(size_bytes))


def _of_patterns(
    view: View,
    title: str,
    rows: Sequence[RepetitionRow],
    quantity: Quantity,
    across: tuple[str, Callable[[RepetitionRow], float]],
    *,
    name: Callable[[float], str] = "{:g}".format,
) -> list[Drawing]:
    """One line chart per pattern."""
    return drawn_by(
        rows, pattern_of, lambda pattern, of: lines(view, f"{title}, {pattern}", of, quantity, across, name=name)
    )


def _test1(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    by_block = partial(pivot, view, rows=rows, head=("operation", pattern_of), across=_block_bytes, name=size_label)
    tables = (
        by_block(title="Throughput against block size", quantity=Quantity.THROUGHPUT),
        by_block(title="Energy against block size", quantity=Quantity.ENERGY),
    )
    charts = _of_patterns(view, "Throughput", rows, Quantity.THROUGHPUT, ("block size", _block_bytes), name=_size_name)
    return SuiteSection(
        "Test 1: throughput against block size", "test1", tables, tuple(charts), (view.footnote("test1"),)
    )


def _test2(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    def at_size(row: RepetitionRow) -> str:
        return f"{pattern_of(row)}, {size_label(_file_bytes(row))}"

    def with_jobs(row: RepetitionRow) -> str:
        return f"{pattern_of(row)}, {jobs_of(row)} jobs"

    def job_name(jobs: int) -> str:
        return "1 job" if jobs == 1 else f"{jobs} jobs"

    largest = max(map(_file_bytes, rows), default=0)
    most_jobs = max(map(jobs_of, rows), default=0)
    of_largest = [row for row in rows if _file_bytes(row) == largest]
    of_most = [row for row in rows if jobs_of(row) == most_jobs]
    by_jobs = partial(pivot, view, rows=of_largest, head=("operation, file", at_size), across=jobs_of, name=job_name)
    by_size = partial(
        pivot, view, rows=of_most, head=("operation, jobs", with_jobs), across=_file_bytes, name=size_label
    )
    tables = (
        by_jobs(title="IOPS against jobs", quantity=Quantity.IOPS, most=0),
        by_jobs(title="Energy against jobs", quantity=Quantity.ENERGY),
        by_size(title="CPU against file size", quantity=Quantity.CPU, most=1),
        by_size(title="Maximum latency against file size", quantity=Quantity.LATENCY_MAX, most=1),
        by_size(title="Energy against file size", quantity=Quantity.ENERGY),
    )
    charts = [
        *_of_patterns(view, f"IOPS, files of {size_label(largest)}", of_largest, Quantity.IOPS, ("jobs", jobs_of)),
        *_of_patterns(
            view, f"CPU, {most_jobs} jobs", of_most, Quantity.CPU, ("file size", _file_bytes), name=_size_name
        ),
        *_of_patterns(
            view,
            f"Maximum latency, {most_jobs} jobs",
            of_most,
            Quantity.LATENCY_MAX,
            ("file size", _file_bytes),
            name=_size_name,
        ),
    ]
    notes = ("CPU: fio's own processes, user and system", view.footnote("test2"))
    return SuiteSection("Test 2: jobs and file sizes", "test2", tables, tuple(charts), notes)


def _test3(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    columns = [
        *heads(view, rows, words(rows, "operation", label_of)),
        measured(rows, Quantity.THROUGHPUT),
        measured(rows, Quantity.LATENCY_MAX, most=1),
        measured(rows, Quantity.CPU, most=1),
        measured(rows, Quantity.PER_CPU_PERCENT, most=0),
        measured(rows, Quantity.ENERGY),
    ]
    charts = _of_patterns(
        view, "Throughput, raw disk", rows, Quantity.THROUGHPUT, ("block size", _block_bytes), name=_size_name
    )
    notes = (
        "operations per CPU per cent: all operations of the job over its mean CPU, as we read it",
        view.footnote("test3"),
    )
    shown = table(view, "The raw disk", columns, groups=[pattern_of(row) for row in rows])
    return SuiteSection("Test 3: the raw disk", "test3", (shown,), tuple(charts), notes)


_TESTS: Final[dict[str, Callable[[View, Sequence[RepetitionRow]], SuiteSection]]] = {
    "test1": _test1,
    "test2": _test2,
    "test3": _test3,
}


def _published(view: View) -> Table:
    """Each published figure of this run's parts, with the run's figure on each storage device."""
    lines_of = [
        (figure, kernel)
        for figure, kernel in product(PUBLICATIONS[view.suite.publication].figures, view.summary.run.plan.kernels)
        if figure.cell.part in view.suite.parts
    ]
    figures = [figure for figure, _ in lines_of]
    columns: list[Filled] = [
        _words("operation", [figure.cell.workload for figure in figures]),
        _words("filesystem", [figure.cell.filesystem for figure in figures]),
        _words("figure", [f"{f.cell.quantity.value}, {f.cell.quantity.unit}".removesuffix(", ") for f in figures]),
        _words("machine", [figure.hardware for figure in figures]),
    ]
    if view.several_kernels:
        columns.append(_words("kernel", [kernel for _, kernel in lines_of]))
    columns.append((Column(PUBLISHED), [view.published_cell(figure) for figure in figures]))
    for storage in dict.fromkeys(row.series.storage for row in view.suite.rows):
        columns += _on(view, storage, lines_of)
    return table(view, "Beside the published figures", columns, groups=[figure.cell.part for figure in figures])


def _words(name: str, texts: Sequence[str]) -> Filled:
    return Column(name, is_figure=False, head=True), [Cell(text) for text in texts]


def _on(view: View, storage: str, lines_of: Sequence[tuple[PublishedFigure, str]]) -> list[Filled]:
    """The run's figures on a storage device, and their ratios over the published ones."""
    plan = view.summary.run.plan
    by_kernel = {
        kernel: measured_figures(
            plan, [row for row in view.suite.rows if (row.kernel, row.series.storage) == (kernel, storage)]
        )
        for kernel in plan.kernels
    }
    here: list[Cell] = []
    ratios: list[Cell] = []
    for figure, kernel in lines_of:
        found = by_kernel[kernel][figure.cell]
        spread = found if isinstance(found, Spread) else None
        decimals = decimals_for([spread], most=1)
        here.append(Cell(mean_text(spread, decimals), sd_text(spread, decimals)) if spread else Cell(ABSENT))
        ratios.append(Cell(ratio_text(spread.mean / figure.value if spread else None)))
    return [(Column("here", storage), here), (Column("ratio", joins=True), ratios)]
