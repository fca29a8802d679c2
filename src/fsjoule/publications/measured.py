"""A run's figures in the cells of a publication. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from fsjoule import filesystems
from fsjoule.metrics import Metric, figure_of
from fsjoule.model import MIB, Measurement, Plan
from fsjoule.publications.cells import Cell, Figures, Found, Quantity
from fsjoule.publications.publication import Publication
from fsjoule.statistics.spread import Spread, spread_of

_MS: Final = 1000


def _times(factor: float, figure: float | None) -> float | None:
    return None if figure is None else factor * figure


def cpu_percent(measurement: Measurement) -> float | None:
    """CPU time of fio's own processes over its runtime, user and system."""
    fio = measurement.fio
    return None if fio is None else fio.usr_cpu_percent + fio.sys_cpu_percent


def per_cpu_percent(measurement: Measurement) -> float | None:
    """Operations of the whole job over its CPU per cent."""
    percent = cpu_percent(measurement)
    return measurement.fio.ios / percent if measurement.fio and percent else None


def together_s(measurement: Measurement) -> float | None:
    """The operation with the unmount after it."""
    if measurement.duration_s is None or measurement.unmount_s is None:
        return None
    return measurement.duration_s + measurement.unmount_s


MEASURED: Final[dict[Quantity, Callable[[Measurement], float | None]]] = {
    Quantity.THROUGHPUT: lambda m: figure_of(m, Metric.THROUGHPUT),
    Quantity.IOPS: lambda m: figure_of(m, Metric.IOPS),
    Quantity.POWER: lambda m: figure_of(m, Metric.POWER),
    Quantity.POWER_SD: lambda m: m.energy.power_sd_w if m.energy else None,
    Quantity.ENERGY: lambda m: figure_of(m, Metric.ENERGY),
    Quantity.LATENCY_MAX: lambda m: m.fio.latency_max_ns / 1e6 if m.fio else None,
    Quantity.PER_CPU_PERCENT: per_cpu_percent,
    Quantity.TIME: lambda m: m.duration_s,
    Quantity.UNMOUNT: lambda m: m.unmount_s,
    Quantity.TOGETHER: together_s,
    Quantity.REAL: lambda m: _times(_MS, m.duration_s),
    Quantity.SYS: lambda m: _times(_MS, m.sys_s),
    Quantity.USER: lambda m: _times(_MS, m.user_s),
    Quantity.TOTAL: lambda m: m.space.total_bytes / MIB if m.space else None,
    Quantity.USED: lambda m: m.space.used_bytes / MIB if m.space else None,
    Quantity.KERNEL_THREADS: lambda m: float(m.space.kernel_threads) if m.space else None,
}


def part_of(suite: str) -> str:
    """`boot` of `elc2015/boot`; empty for a suite without parts."""
    return suite.partition("/")[2]


def measured_figures(publication: Publication, plan: Plan, measurements: Iterable[Measurement]) -> Figures:
    """Means of the valid repetitions by cell. The measurements are those of one kernel on one storage device."""
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for m in measurements:
        if m.valid:
            groups.setdefault((m.series.suite, m.series.filesystem, m.series.workload), []).append(m)
    found: dict[Cell, Found] = {}
    for (suite, filesystem, _), group in groups.items():
        workloads = [entry.workload for entry in plan.entries if entry.suite == suite]
        part = part_of(suite)
        for name in publication.names(part, group[0].workload, workloads):
            for quantity, get in MEASURED.items():
                _keep_greatest(found, Cell(part, filesystem, name, quantity), spread_of(map(get, group)))
    return Figures(found, _without(plan))


def _keep_greatest(found: dict[Cell, Found], cell: Cell, spread: Spread | None) -> None:
    known = found.get(cell)
    if spread is not None and not (isinstance(known, Spread) and known.mean >= spread.mean):
        found[cell] = spread


def _without(plan: Plan) -> frozenset[tuple[str, str]]:
    """Parts with filesystems of the plan that lack what the part measures, and have nothing planned in it."""
    operations: dict[str, set[str]] = {}
    planned: set[tuple[str, str]] = set()
    for entry in plan.entries:
        part = part_of(entry.suite)
        operations.setdefault(part, set()).add(entry.workload.operation.value)
        planned.add((part, entry.filesystem))
    return frozenset(
        (part, name)
        for part, measured in operations.items()
        for name in plan.filesystems
        if (part, name) not in planned and measured & filesystems.filesystem(name).lacks
    )
