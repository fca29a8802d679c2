"""Pieces of a suite's page: a section for each part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fsjoule.report.tables import PUBLISHED, Table

Drawing = Callable[[], str | None]
"""A chart as SVG, drawn when it is asked for: the terminal does without. None if there is nothing to draw."""


@dataclass(frozen=True, slots=True)
class Section:
    """Tables and charts under one title. `notes` stand below the tables, `ticks` are for published figures."""

    title: str
    anchor: str
    tables: tuple[Table, ...]
    charts: tuple[Drawing, ...] = ()
    notes: tuple[str, ...] = ()
    ticks: bool = True

    @property
    def has_published(self) -> bool:
        """Whether its charts have published figures, as its tables do."""
        return self.ticks and any(column.name == PUBLISHED for table in self.tables for column in table.columns)
