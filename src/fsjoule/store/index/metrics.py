"""The figures of a measurement that the index keeps, under the names of their columns. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from fsjoule.model import FioResult, Measurement, Value

_P99: Final = 99.0


class Metric(StrEnum):
    """A figure by the name of its column, which ends in its unit.

    Energies per MiB are those of fio's jobs; an operation that moves nothing (mkfs, boot) has the energies of its whole
    window only.
    """

    THROUGHPUT = "throughput_mib_per_s"
    IOPS = "iops"
    ENERGY = "energy_mj_per_mib"
    ENERGY_NET = "energy_net_mj_per_mib"
    WINDOW_ENERGY = "energy_mj"
    WINDOW_ENERGY_NET = "energy_net_mj"
    POWER = "mean_power_w"
    CPU = "cpu_s_per_mib"
    WRITE_AMPLIFICATION = "write_amplification"
    LATENCY_P99 = "latency_p99_ms"
    DURATION = "duration_s"

    @property
    def higher_is_better(self) -> bool:
        return self in (Metric.THROUGHPUT, Metric.IOPS)

    @property
    def uncertainty_column(self) -> str | None:
        """The column of its standard uncertainty (k=1), of those that the meter measured."""
        return f"{self.value}_uncertainty" if self in METERED else None


METERED: Final = frozenset(
    {Metric.ENERGY, Metric.ENERGY_NET, Metric.WINDOW_ENERGY, Metric.WINDOW_ENERGY_NET, Metric.POWER}
)


def figure_columns() -> tuple[str, ...]:
    """All columns of figures: each metric, and behind it its uncertainty if it has one."""
    return tuple(
        column for metric in Metric for column in (metric.value, metric.uncertainty_column) if column is not None
    )


def figures_of(measurement: Measurement) -> dict[str, float | None]:
    """The figures by column. An absent one is None, never zero."""
    energy = measurement.energy
    metered = {
        Metric.ENERGY: measurement.energy_mj_per_mib,
        Metric.ENERGY_NET: measurement.energy_net_mj_per_mib,
        Metric.WINDOW_ENERGY: energy.gross_mj if energy else None,
        Metric.WINDOW_ENERGY_NET: energy.net_mj if energy else None,
        Metric.POWER: energy.mean_power_w if energy else None,
    }
    return {
        Metric.THROUGHPUT.value: measurement.throughput_mib_per_s,
        Metric.IOPS.value: measurement.iops,
        **_with_uncertainties(metered),
        Metric.CPU.value: measurement.cpu_s_per_mib,
        Metric.WRITE_AMPLIFICATION.value: measurement.write_amplification,
        Metric.LATENCY_P99.value: _latency_p99_ms(measurement.fio),
        Metric.DURATION.value: measurement.duration_s,
    }


def _with_uncertainties(metered: dict[Metric, Value | None]) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    for metric, value in metered.items():
        columns[metric.value] = value.value if value else None
        columns[f"{metric.value}_uncertainty"] = value.uncertainty if value else None
    return columns


def _latency_p99_ms(fio: FioResult | None) -> float | None:
    # fio writes 99.000000, run folders have been seen with 99: the number counts, not how it is spelt.
    found = (ns for name, ns in fio.latency_percentiles_ns.items() if _number(name) == _P99) if fio else iter(())
    return next((ns / 1e6 for ns in found), None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
