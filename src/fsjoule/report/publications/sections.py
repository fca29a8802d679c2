"""The sections of a suite's page, one per part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fsjoule.report.table import Table
from fsjoule.report.tables import PUBLISHED

Drawing = Callable[[], str | None]
"""A chart as SVG, drawn on request, because the terminal needs none. None if there is nothing to draw."""


@dataclass(frozen=True, slots=True)
class Section:
    """Tables and charts under one title. `notes` stand below the tables; `ticks` mark published figures in charts."""

    title: str
    anchor: str
    tables: tuple[Table, ...]
    charts: tuple[Drawing, ...] = ()
    notes: tuple[str, ...] = ()
    ticks: bool = True

    @property
    def has_published(self) -> bool:
        """Whether its charts show published figures."""
        return self.ticks and any(column.name == PUBLISHED for table in self.tables for column in table.columns)
