"""Tables I to VI of the energy paper, with the run's figures beside the printed ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from fsjoule.model import KIB
from fsjoule.plugins.publications.energy_emmc import TABLES
from fsjoule.report.charts import energy_chart, throughput_chart
from fsjoule.report.numbers import decimals_for, mean_text
from fsjoule.report.publications.view import (
    SuiteSection,
    View,
    beside,
    heads,
    label_of,
    pattern_of,
    published_columns,
    table,
    words,
)
from fsjoule.report.table import Cell, Column, Filled, Table, Tone
from fsjoule.report.tables import PUBLISHED
from fsjoule.suites.published.cells import Quantity
from fsjoule.suites.published.measured import RepetitionRow

_ROMAN: Final = ("I", "II", "III", "IV", "V", "VI")


def sections(view: View) -> list[SuiteSection]:
    """One section: the publication's tables in its order, then a table of further filesystems."""
    rows = view.part("")
    shown: list[RepetitionRow] = []
    tables: list[Table] = []
    for number, (filesystem, kib) in zip(_ROMAN, TABLES, strict=True):
        those = [
            row for row in rows if row.series.filesystem == filesystem and row.workload.block_size_bytes // KIB == kib
        ]
        shown += those
        if those:
            first = words(those, "operation", pattern_of)
            columns = [first, *heads(view, those)[1:], *_figures(view, those)]
            tables.append(
                table(
                    view,
                    f"Table {number}: {filesystem}, {kib} KiB",
                    columns,
                    groups=[cell.text for cell in first[1]] if view.several_kernels else [""] * len(those),
                )
            )
    others = [row for row in rows if row not in shown]
    if others:
        title = "On filesystems that the publication does not have"
        tables.append(
            table(view, title, heads(view, others, words(others, "operation", label_of)) + _figures(view, others))
        )
    notes = (
        view.footnote(""),
        "power ± the deviation of its samples, as in the publication; its other figures are of one run",
        "energy is gross; in the chart, the part above idle power is darker",
    )
    charts = tuple(partial(chart, view.summary, card=True) for chart in (throughput_chart, energy_chart))
    return [SuiteSection("Tables I to VI", "tables", tuple(tables), charts, notes)]


def _figures(view: View, rows: Sequence[RepetitionRow]) -> list[Filled]:
    with_card = " with card" if view.with_card else ""
    return [
        *beside(view, rows, Quantity.THROUGHPUT, f"throughput{with_card}"),
        *_power(view, rows),
        *beside(view, rows, Quantity.ENERGY, f"energy{with_card}"),
    ]


def _power(view: View, rows: Sequence[RepetitionRow]) -> list[Filled]:
    """Mean power with the deviation of its samples, not of repetitions."""
    powers = [row.spread(Quantity.POWER) for row in rows]
    deviations = [row.spread(Quantity.POWER_SD) for row in rows]
    decimals = decimals_for(powers)
    cells = [
        Cell(mean_text(power, decimals), "" if sd is None else f"± {mean_text(sd, decimals)}")
        for power, sd in zip(powers, deviations, strict=True)
    ]
    filled = (Column("power", "W"), cells)
    published = [view.published(row, Quantity.POWER) for row in rows]
    if not any(published):
        return [filled]
    _, ratio = published_columns(view, rows, published, Quantity.POWER)
    printed = [(figure, view.published(row, Quantity.POWER_SD)) for figure, row in zip(published, rows, strict=True)]
    shown: list[Cell] = []
    for figure, sd in printed:
        mean, deviation = view.published_cell(figure), view.published_cell(sd)
        tone = Tone.DOUBT if Tone.DOUBT in (mean.tone, deviation.tone) else Tone.PLAIN
        shown.append(Cell(mean.text, f"± {deviation.text}" if sd else "", tone))
    return [filled, (Column(PUBLISHED, "W", joins=True), shown), ratio]
