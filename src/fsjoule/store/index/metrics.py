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


_COLUMNS: Final = figure_columns()


def figures_of(measurement: Measurement) -> dict[str, float | None]:
    """The figures by column. An absent one is None, never zero."""
    energy = measurement.energy
    # In the order of `Metric`.
    figures = (
        measurement.throughput_mib_per_s,
        measurement.iops,
        *_with_uncertainty(measurement.energy_mj_per_mib),
        *_with_uncertainty(measurement.energy_net_mj_per_mib),
        *_with_uncertainty(energy.gross_mj if energy else None),
        *_with_uncertainty(energy.net_mj if energy else None),
        *_with_uncertainty(energy.mean_power_w if energy else None),
        measurement.cpu_s_per_mib,
        measurement.write_amplification,
        _latency_p99_ms(measurement.fio),
        measurement.duration_s,
    )
    return dict(zip(_COLUMNS, figures, strict=True))


def _with_uncertainty(value: Value | None) -> tuple[float | None, float | None]:
    return (value.value, value.uncertainty) if value else (None, None)


def _latency_p99_ms(fio: FioResult | None) -> float | None:
    # fio writes 99.000000, run folders have been seen with 99: the number counts, not how it is spelt.
    found = (ns for name, ns in fio.latency_percentiles_ns.items() if _number(name) == _P99) if fio else iter(())
    return next((ns / 1e6 for ns in found), None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
