"""The figures that are kept and compared: unit, better direction, and place in a measurement. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.model import IoPattern, Measurement, TimedKind, Value, Workload

Figure = float | None
"""A figure of one measurement, or its median over one boot; None if it is absent."""


class Metric(StrEnum):
    """A figure, by its name for users. Less is better, except for throughput and IOPS.

    Energies per MiB belong to fio's jobs. A workload that moves nothing (mkfs, boot) has only the energy of the whole
    operation. Net is the board's energy above idle.
    """

    THROUGHPUT = "throughput"
    IOPS = "iops"
    ENERGY = "energy"
    NET_ENERGY = "net-energy"
    OPERATION_ENERGY = "operation-energy"
    OPERATION_NET_ENERGY = "operation-net-energy"
    POWER = "power"
    CPU = "cpu"
    WRITE_AMPLIFICATION = "write-amplification"
    P99_LATENCY = "p99-latency"
    DURATION = "duration"

    @property
    def more_is_better(self) -> bool:
        return self in (Metric.THROUGHPUT, Metric.IOPS)

    @property
    def unit(self) -> str:
        """The printed unit; empty for a count and a ratio."""
        return _WORDS[self][0]

    def change(self, ratio: float) -> str:
        """The word for a change by this ratio: `slower`, `more energy`."""
        return _WORDS[self][2 if ratio > 1 else 1]


# Unit, and the words for less and more of the figure, for compare, gate, trend, note and report alike.
_WORDS: Final = {
    Metric.THROUGHPUT: ("MiB/s", "slower", "faster"),
    Metric.IOPS: ("1/s", "fewer IOPS", "more IOPS"),
    Metric.ENERGY: ("mJ/MiB", "less energy", "more energy"),
    Metric.NET_ENERGY: ("mJ/MiB", "less net energy", "more net energy"),
    Metric.OPERATION_ENERGY: ("mJ", "less energy", "more energy"),
    Metric.OPERATION_NET_ENERGY: ("mJ", "less net energy", "more net energy"),
    Metric.POWER: ("W", "less power", "more power"),
    Metric.CPU: ("s/MiB", "less CPU time", "more CPU time"),
    Metric.WRITE_AMPLIFICATION: ("", "less written", "more written"),
    Metric.P99_LATENCY: ("ms", "lower p99", "higher p99"),
    Metric.DURATION: ("s", "less time", "more time"),
}

# The metrics of verdicts: net energy, IOPS and power follow from these.
FIO_METRICS: Final = (Metric.THROUGHPUT, Metric.ENERGY, Metric.CPU, Metric.WRITE_AMPLIFICATION, Metric.P99_LATENCY)
TIMED_METRICS: Final = (Metric.DURATION, Metric.OPERATION_ENERGY)
_ALSO_FIO: Final = (Metric.IOPS, Metric.NET_ENERGY, Metric.POWER)
_ALSO_TIMED: Final = (Metric.OPERATION_NET_ENERGY, Metric.POWER)


def figure_of(measurement: Measurement, metric: Metric) -> Figure:
    """The figure in the metric's unit, even from an invalid measurement; None if it is absent."""
    return _FIGURES[metric](measurement)


def metrics_named(names: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics that a user names, all of them for `all`. Raises ConfigError for an unknown one."""
    if tuple(names) == ("all",):
        return tuple(Metric)
    for name in names:
        if name not in list(Metric):
            raise ConfigError.unknown("metric", name, [*Metric, "all"])
    return tuple(map(Metric, names))


def metrics_of(workload: Workload) -> tuple[Metric, ...]:
    """The metrics that are meaningful for a workload."""
    return metrics_of_series(workload.slug)


def metrics_of_series(workload: str) -> tuple[Metric, ...]:
    """The same for a workload by its name in a series: `randread-16k 32768KiB`, `mkfs`."""
    operation = re.split(r"[- ]", workload)[0]
    known = {each.value: each for each in (*IoPattern, *TimedKind)}
    return _told(known[operation]) if operation in known else ()


def _told(operation: IoPattern | TimedKind) -> tuple[Metric, ...]:
    if isinstance(operation, TimedKind):
        return TIMED_METRICS + _ALSO_TIMED
    told = FIO_METRICS + _ALSO_FIO
    return told if operation.writes else tuple(each for each in told if each is not Metric.WRITE_AMPLIFICATION)


def uncertainty_of(measurement: Measurement, metric: Metric) -> Figure:
    """The standard uncertainty (k=1) of a figure from the meter, in its unit; None for other figures."""
    value = _METERED[metric](measurement) if metric in _METERED else None
    return None if value is None else value.uncertainty


_METERED: Final[dict[Metric, Callable[[Measurement], Value | None]]] = {
    Metric.ENERGY: lambda m: m.energy_mj_per_mib,
    Metric.NET_ENERGY: lambda m: m.energy_net_mj_per_mib,
    Metric.OPERATION_ENERGY: lambda m: m.energy.gross_mj if m.energy else None,
    Metric.OPERATION_NET_ENERGY: lambda m: m.energy.net_mj if m.energy else None,
    Metric.POWER: lambda m: m.energy.mean_power_w if m.energy else None,
}
METERED: Final = frozenset(_METERED)


def _metered(metric: Metric) -> Callable[[Measurement], Figure]:
    def figure(measurement: Measurement) -> Figure:
        value = _METERED[metric](measurement)
        return None if value is None else value.value

    return figure


_FIGURES: Final[dict[Metric, Callable[[Measurement], Figure]]] = {
    Metric.THROUGHPUT: lambda m: m.throughput_mib_per_s,
    Metric.IOPS: lambda m: m.iops,
    **{metric: _metered(metric) for metric in _METERED},
    Metric.CPU: lambda m: m.cpu_s_per_mib,
    Metric.WRITE_AMPLIFICATION: lambda m: m.write_amplification,
    Metric.P99_LATENCY: lambda m: m.fio.p99_ms if m.fio else None,
    Metric.DURATION: lambda m: m.duration_s,
}
