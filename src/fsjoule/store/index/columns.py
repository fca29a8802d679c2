"""The columns of a measurement's figures. Their names end in their units."""

from __future__ import annotations

from typing import Final

from fsjoule.model.metrics import Metric
from fsjoule.model.series import Point

COLUMNS: Final = {metric: metric.row.column for metric in Metric}
# Standard uncertainties (k=1) of those figures that have one.
UNCERTAINTY_COLUMNS: Final = {metric: f"{COLUMNS[metric]}_uncertainty" for metric in Metric if metric.row.uncertain}


def figure_columns() -> tuple[str, ...]:
    """All columns of figures: each metric's, followed by its uncertainty's if it has one."""
    return tuple(
        name for metric, column in COLUMNS.items() for name in (column, UNCERTAINTY_COLUMNS.get(metric)) if name
    )


def figures_of(point: Point) -> dict[str, float | None]:
    """The figures by column, in the order of the columns. Absent figures are None, never zero."""
    figures: dict[str, float | None] = {}
    for metric, column in COLUMNS.items():
        figures[column] = point.figures.get(metric)
        if metric in UNCERTAINTY_COLUMNS:
            figures[UNCERTAINTY_COLUMNS[metric]] = point.uncertainties.get(metric)
    return figures
