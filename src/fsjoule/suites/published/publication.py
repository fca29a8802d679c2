"""The type of a publication: figures, statements and doubts."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsjoule.model import Workload
from fsjoule.suites.published.cells import CellFigures, PublishedFigure
from fsjoule.suites.published.doubts import Doubt
from fsjoule.suites.published.statements import Statement

Names = Callable[[str, Workload, Sequence[Workload]], tuple[str, ...]]
"""A publication's names, any number, for a workload, given its part and all workloads of the part."""


def by_slug(_part: str, workload: Workload, _workloads: Sequence[Workload]) -> tuple[str, ...]:
    """A timed operation's name, because its sizes are the board's; else the slug."""
    return (workload.name,)


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication by the name of its suite.

    `remarks` are for readers who compare with it. `without` are pairs of a part and a filesystem that it calls
    impossible. `names` gives a workload's names in cells; if workloads share a name, the greatest figure counts.
    `lends_to` are suites that have some of its workloads. `sections` is the function (`module:name`, of a
    `report.publications.view.View`) with which a report gets its own sections, if there are any.
    """

    name: str
    source: str
    remarks: tuple[str, ...]
    figures: tuple[PublishedFigure, ...] = ()
    statements: tuple[Statement, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    without: frozenset[tuple[str, str]] = field(default_factory=frozenset[tuple[str, str]])
    names: Names = by_slug
    lends_to: tuple[str, ...] = ()
    sections: str = ""

    def on(self, hardware: str = "") -> CellFigures:
        """The figures of one machine by cell."""
        found = {figure.cell: figure.spread for figure in self.figures if figure.hardware == hardware}
        return CellFigures(found, self.without)


def rows_of(table: Path, *even: str) -> list[dict[str, str]]:
    """The rows of a CSV table; `even` columns get final zeros again."""
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    for column in even:
        decimals = max(len(row[column].partition(".")[2]) for row in rows)
        for row in rows:
            row[column] = f"{float(row[column]):.{decimals}f}"
    return rows
