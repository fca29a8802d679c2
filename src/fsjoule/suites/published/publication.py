"""What a publication is: its figures, and what may be asked of them and of a run's."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from fsjoule.model import Workload
from fsjoule.suites.published.cells import Figures, PublishedFigure
from fsjoule.suites.published.doubts import Doubt
from fsjoule.suites.published.statements import Statement

Names = Callable[[str, Workload, Sequence[Workload]], tuple[str, ...]]
"""What a publication calls a workload of a part, of which all workloads are given: any number of names."""


def by_slug(_part: str, workload: Workload, _workloads: Sequence[Workload]) -> tuple[str, ...]:
    """A timed operation by its name, since its sizes are the board's; anything else by its slug."""
    return (workload.name,)


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication by the name of its suite.

    `remarks` are for those who compare with it. `without` has parts with filesystems that it says cannot be measured
    there. `names` gives a workload the names that cells have; of several workloads of one name the greatest figure
    counts.
    """

    name: str
    source: str
    remarks: tuple[str, ...]
    figures: tuple[PublishedFigure, ...] = ()
    statements: tuple[Statement, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    without: frozenset[tuple[str, str]] = field(default_factory=frozenset[tuple[str, str]])
    names: Names = by_slug

    def on(self, hardware: str = "") -> Figures:
        """The figures of one of its machines by their cells."""
        found = {figure.cell: figure.spread for figure in self.figures if figure.hardware == hardware}
        return Figures(found, self.without)


def rows_of(table: str, *even: str) -> list[dict[str, str]]:
    """The rows of a table that is kept beside this module.

    Columns that are `even` are printed with one number of decimals: zeros at the end, which data lack, are put back.
    """
    text = files(__name__.rpartition(".")[0]).joinpath(table).read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    for column in even:
        decimals = max(len(row[column].partition(".")[2]) for row in rows)
        for row in rows:
            row[column] = f"{float(row[column]):.{decimals}f}"
    return rows
