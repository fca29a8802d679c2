"""The form of a publication without one of its own: a section per part, published figures beside measured ones."""

from __future__ import annotations

from typing import Final

from fsjoule.model import FioWorkload, TimedWorkload
from fsjoule.report.publications.view import SuiteSection, View, bars, beside, heads, label_of, table, words
from fsjoule.suites.published.cells import Quantity

_QUANTITIES: Final = (Quantity.TIME, Quantity.THROUGHPUT, Quantity.ENERGY)


def sections(view: View) -> list[SuiteSection]:
    return [_section(view, part) for part in view.suite.parts]


def _section(view: View, part: str) -> SuiteSection:
    """A table of the figures that any row has; charts of the operations' times and of fio's throughput."""
    rows = view.part(part)
    title = part or "Figures"
    present = [quantity for quantity in _QUANTITIES if any(row.spread(quantity) for row in rows)]
    columns = heads(view, rows, words(rows, "operation", label_of))
    for quantity in present:
        columns += beside(view, rows, quantity)
    drawn = {
        Quantity.TIME: [row for row in rows if isinstance(row.workload, TimedWorkload)],
        Quantity.THROUGHPUT: [row for row in rows if isinstance(row.workload, FioWorkload)],
    }
    charts = tuple(bars(view, f"{title}: {name.value}", of, name, label_of) for name, of in drawn.items() if of)
    return SuiteSection(title, part or "figures", (table(view, title, columns),), charts, (view.footnote(part),))
