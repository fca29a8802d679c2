"""The four tests of "File System Benchmarks": operation and unmount, separately and together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fsjoule.report.numbers import ABSENT
from fsjoule.report.publications.view import (
    SuiteSection,
    View,
    bars,
    beside,
    drawn_by,
    heads,
    label_of,
    measured,
    table,
    words,
)
from fsjoule.report.table import Cell, Column, Filled, Tone
from fsjoule.suites.published.cells import Quantity
from fsjoule.suites.published.measured import RepetitionRow

_TESTS: Final = (
    "write_files: files of halving sizes are written; hash_files: SHA-512 of each of them",
    "fragment: directories are filled with files, the oldest removed and made again, up to 75 % of the partition",
    "removing: all of these are removed",
)


def sections(view: View) -> list[SuiteSection]:
    """A table of times, also in percent of the slowest, and a table beside the published figures."""
    rows = view.part("")
    first = words(rows, "test", label_of)
    times = [
        *heads(view, rows, first),
        *(measured(rows, quantity) for quantity in (Quantity.TIME, Quantity.UNMOUNT, Quantity.TOGETHER)),
        _of_the_slowest(rows),
        (
            Column("failed"),
            [Cell(str(row.invalid), tone=Tone.BAD if row.invalid else Tone.PLAIN) for row in rows],
        ),
        measured(rows, Quantity.OPERATION_ENERGY, "energy", most=0),
    ]
    compared = [row for row in rows if view.published(row, Quantity.TOGETHER)]
    tables = [table(view, "Operation and unmount", times)]
    if compared:
        columns = heads(view, compared, words(compared, "test", label_of), with_n=False)
        for quantity in (Quantity.TIME, Quantity.UNMOUNT, Quantity.TOGETHER):
            columns += beside(view, compared, quantity)
        tables.append(table(view, "Beside the published times", columns))
    factor = view.size_factor("")
    # Times for less data do not compare with published times.
    as_published = factor in (None, 1)
    charts = drawn_by(
        rows,
        label_of,
        lambda test, of: bars(view, f"{test}: time with unmount", of, Quantity.TOGETHER, label_of, ticks=as_published),
    )
    scaled = (
        () if as_published else (f"ratios are of times for less data: {factor:g} would be the publication's speed",)
    )
    notes = (*_TESTS, *scaled, "failed: repetitions that are in no mean; the reasons are above", view.footnote(""))
    return [SuiteSection("Times", "times", tuple(tables), tuple(charts), notes, ticks=as_published)]


def _of_the_slowest(rows: Sequence[RepetitionRow]) -> Filled:
    """Operation with unmount, in percent of the slowest filesystem's in the same test on the same kernel."""
    slowest: dict[tuple[str, str, str], float] = {}
    for row in rows:
        spread = row.spread(Quantity.TOGETHER)
        if spread is not None:
            key = (row.series.workload, row.kernel, row.series.storage)
            slowest[key] = max(slowest.get(key, 0.0), spread.mean)
    cells: list[Cell] = []
    for row in rows:
        spread = row.spread(Quantity.TOGETHER)
        most = slowest.get((row.series.workload, row.kernel, row.series.storage))
        cells.append(Cell(f"{100 * spread.mean / most:.0f}" if spread and most else ABSENT))
    return Column("of the slowest", "%"), cells
