"""The figures that are compared, in which direction each is better, and where a measurement has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Final

import numpy as np

from fsjoule.model import Measurement, Value

# As fio writes the 99th percentile among its completion latencies.
_P99_KEYS: Final = ("99", "99.0", "99.000000")

Figure = float | None
"""What one boot measured; None where the measurement lacks it."""


class Metric(StrEnum):
    """What is compared. All but throughput are better when they are less."""

    THROUGHPUT = "throughput"
    ENERGY = "energy"
    NET_ENERGY = "net-energy"
    CPU = "cpu"
    WRITE_AMPLIFICATION = "write-amplification"
    P99_LATENCY = "p99-latency"
    DURATION = "duration"
    OPERATION_ENERGY = "operation-energy"

    @property
    def more_is_better(self) -> bool:
        return self is Metric.THROUGHPUT

    @property
    def unit(self) -> str:
        return _UNITS[self]


_UNITS: Final = {
    Metric.THROUGHPUT: "MiB/s",
    Metric.ENERGY: "mJ/MiB",
    Metric.NET_ENERGY: "mJ/MiB",
    Metric.CPU: "s/MiB",
    Metric.WRITE_AMPLIFICATION: "1",
    Metric.P99_LATENCY: "ns",
    Metric.DURATION: "s",
    Metric.OPERATION_ENERGY: "mJ",
}

FIO_METRICS: Final = (
    Metric.THROUGHPUT,
    Metric.ENERGY,
    Metric.CPU,
    Metric.WRITE_AMPLIFICATION,
    Metric.P99_LATENCY,
)
TIMED_METRICS: Final = (Metric.DURATION, Metric.OPERATION_ENERGY)


def metrics_of(measurement: Measurement) -> tuple[Metric, ...]:
    """The metrics that a measurement of this kind has; write amplification only where it wrote."""
    workload = measurement.workload
    if workload.kind == "timed":
        return TIMED_METRICS
    return tuple(m for m in FIO_METRICS if workload.operation.writes or m is not Metric.WRITE_AMPLIFICATION)


def figure_of(measurement: Measurement, metric: Metric) -> Figure:
    """The figure in the metric's unit; None where the measurement is invalid or lacks it."""
    if not measurement.valid:
        return None
    return _FIGURES[metric](measurement)


def one_per_boot(figures: Iterable[tuple[Hashable, Figure]]) -> tuple[Figure, ...]:
    """One figure a boot, in order of first appearance: the median of what the boot measured.

    The boot is the unit of replication (Kalibera, Jones: Rigorous benchmarking in reasonable time, ISMM 2013): figures
    of one boot share its memory layout, and counting each of them would claim a precision that is not there. The key
    must tell boots of different runs apart. A boot that lacks any of its figures lacks its median.
    """
    by_boot: dict[Hashable, list[Figure]] = {}
    for boot, figure in figures:
        by_boot.setdefault(boot, []).append(figure)
    return tuple(_median(found) for found in by_boot.values())


def complaint(figure: Figure) -> str | None:
    """Why a figure cannot be compared, or None: ratios need figures that are finite and above zero."""
    if figure is None:
        return "missing"
    if math.isnan(figure):
        return "not a number"
    if math.isinf(figure):
        return "infinite"
    if figure <= 0:
        return "zero" if figure == 0 else f"negative ({figure:g})"
    return None


def _median(figures: Sequence[Figure]) -> Figure:
    present = [figure for figure in figures if figure is not None]
    return float(np.median(present)) if len(present) == len(figures) else None


def _p99_ns(measurement: Measurement) -> Figure:
    if measurement.fio is None:
        return None
    percentiles = measurement.fio.latency_percentiles_ns
    return next((float(percentiles[key]) for key in _P99_KEYS if key in percentiles), None)


def _value(value: Value | None) -> Figure:
    return None if value is None else value.value


_FIGURES: Final[dict[Metric, Callable[[Measurement], Figure]]] = {
    Metric.THROUGHPUT: lambda m: m.throughput_mib_per_s,
    Metric.ENERGY: lambda m: _value(m.energy_mj_per_mib),
    Metric.NET_ENERGY: lambda m: _value(m.energy_net_mj_per_mib),
    Metric.CPU: lambda m: m.cpu_s_per_mib,
    Metric.WRITE_AMPLIFICATION: lambda m: m.write_amplification,
    Metric.P99_LATENCY: _p99_ns,
    Metric.DURATION: lambda m: m.duration_s,
    Metric.OPERATION_ENERGY: lambda m: None if m.energy is None else m.energy.gross_mj.value,
}
