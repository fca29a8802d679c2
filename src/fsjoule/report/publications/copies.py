"""Copies of "Which is Faster: Btrfs or ext4?": times, and the device read raw."""

from __future__ import annotations

from fsjoule.model import TimedKind
from fsjoule.report.publications.drawing import bars
from fsjoule.report.publications.sections import Section
from fsjoule.report.publications.view import View, heads, label_of, measured, table, words
from fsjoule.suites.published.cells import Quantity


def sections(view: View) -> list[Section]:
    """Copies and reads by size; the publication has no numbers."""
    rows = view.part("")
    columns = [
        *heads(view, rows, words(rows, "operation", label_of)),
        measured(rows, Quantity.TIME),
        measured(rows, Quantity.THROUGHPUT),
        measured(rows, Quantity.ENERGY),
    ]
    copies = [row for row in rows if row.workload.operation is TimedKind.COPY]
    chart = bars(view, "Copies: time", copies, Quantity.TIME, label_of)
    return [Section("Copies", "copies", (table(view, "Copies", columns),), (chart,), (view.footnote(""),))]
