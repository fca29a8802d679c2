"""The columns of a measurement's figures. Their names end in their units."""

from __future__ import annotations

from typing import Final

from fsjoule.model.metrics import METERED, Metric
from fsjoule.model.series import Point

COLUMNS: Final = {
    Metric.THROUGHPUT: "throughput_mib_per_s",
    Metric.IOPS: "iops",
    Metric.ENERGY: "energy_mj_per_mib",
    Metric.NET_ENERGY: "energy_net_mj_per_mib",
    Metric.OPERATION_ENERGY: "energy_mj",
    Metric.OPERATION_NET_ENERGY: "energy_net_mj",
    Metric.POWER: "mean_power_w",
    Metric.CPU: "cpu_s_per_mib",
    Metric.WRITE_AMPLIFICATION: "write_amplification",
    Metric.P99_LATENCY: "latency_p99_ms",
    Metric.DURATION: "duration_s",
}
# Standard uncertainties (k=1) of metered figures.
UNCERTAINTY_COLUMNS: Final = {metric: f"{COLUMNS[metric]}_uncertainty" for metric in Metric if metric in METERED}


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
