"""A run's figures by row and by cell of a publication, and which of its statements hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.filesystems import filesystem
from fsjoule.model import MIB, DamageOutcome, FileFate, Measurement, Plan, SeriesKey, Workload
from fsjoule.model.filesystem import content_of
from fsjoule.model.metrics import Metric, figure_of
from fsjoule.statistics.spread import Proportion, Spread, spread_of
from fsjoule.suites.published.catalogue import publication_of
from fsjoule.suites.published.cells import CellFigures, FigureCell, Found, Quantity
from fsjoule.suites.published.doubts import Doubt
from fsjoule.suites.published.publication import Publication
from fsjoule.suites.published.statements import Statement, StatementAnswer, StatementSource

_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class RepetitionRow:
    """The valid repetitions of one workload on one filesystem, storage device and kernel.

    `names` are the publication's names of the workload. `threads_s` is the CPU time of each kernel thread.
    """

    part: str
    kernel: str
    series: SeriesKey
    workload: Workload
    names: tuple[str, ...]
    valid: int
    invalid: int
    figures: dict[Quantity, Found]
    threads_s: dict[str, Spread]

    def __getitem__(self, quantity: Quantity) -> Found | None:
        return self.figures.get(quantity)

    def spread(self, quantity: Quantity) -> Spread | None:
        found = self.figures.get(quantity)
        return found if isinstance(found, Spread) else None


def rows_of_run(publication: Publication, plan: Plan, measurements: Sequence[Measurement]) -> tuple[RepetitionRow, ...]:
    """The rows of all series and kernels of a run of the publication's suite, in order of appearance."""
    groups: dict[tuple[SeriesKey, str], list[Measurement]] = {}
    for m in measurements:
        groups.setdefault((m.series, m.kernel), []).append(m)
    workloads: dict[str, list[Workload]] = {}
    for entry in plan.entries:
        workloads.setdefault(entry.suite, []).append(entry.workload)
    return tuple(
        _row(publication, group, workloads.get(series.suite, [group[0].workload]))
        for (series, _), group in groups.items()
    )


def _row(publication: Publication, group: Sequence[Measurement], workloads: Sequence[Workload]) -> RepetitionRow:
    first = group[0]
    part = part_of(first.series.suite)
    valid = [m for m in group if m.valid]
    figures: dict[Quantity, Found] = {}
    for quantity, get in MEASURED.items():
        spread = spread_of(map(get, valid))
        if spread is not None:
            figures[quantity] = spread
    if outcomes := [m.outcome for m in valid if m.outcome is not None]:
        figures |= {quantity: Proportion(sum(map(so, outcomes)), len(outcomes)) for quantity, so in OUTCOMES.items()}
    variation = _variation([m.duration_s for m in valid if m.duration_s is not None])
    if variation is not None:
        figures[Quantity.VARIATION] = variation
    threads = dict.fromkeys(name for m in valid for name in m.kernel_threads_s)
    return RepetitionRow(
        part=part,
        kernel=first.kernel,
        series=first.series,
        workload=first.workload,
        names=publication.names(part, first.workload, workloads),
        valid=len(valid),
        invalid=len(group) - len(valid),
        figures=figures,
        # A repetition does not list threads without CPU time.
        threads_s={
            name: spread
            for name in threads
            if (spread := spread_of(m.kernel_threads_s.get(name, 0.0) for m in valid)) is not None
        },
    )


def _variation(durations_s: Sequence[float]) -> Spread | None:
    """Range over mean in percent; None for a single repetition."""
    spread = spread_of(durations_s)
    if spread is None or spread.n == 1 or not spread.mean:
        return None
    return Spread(spread.n, 100 * (max(durations_s) - min(durations_s)) / spread.mean, None)


def measured_figures(plan: Plan, rows: Iterable[RepetitionRow]) -> CellFigures:
    """Figures by cell, from the rows of one kernel on one storage device."""
    found: dict[FigureCell, Found] = {}
    for row in rows:
        for name in row.names:
            for quantity, figure in row.figures.items():
                cell = FigureCell(row.part, row.series.filesystem, name, quantity)
                known = found.get(cell)  # of several figures of a cell the greatest counts
                if not (isinstance(known, Spread) and isinstance(figure, Spread) and known.mean >= figure.mean):
                    found[cell] = figure
    return CellFigures(found, _without(plan))


def _without(plan: Plan) -> frozenset[tuple[str, str]]:
    """Pairs of a part and a filesystem of the plan that lacks the part's operation and has no entry there."""
    operations: dict[str, set[str]] = {}
    planned: set[tuple[str, str]] = set()
    for entry in plan.entries:
        part = part_of(entry.suite)
        planned.add((part, content_of(entry.filesystem)))
        operations.setdefault(part, set()).add(entry.workload.operation.value)
    return frozenset(
        (part, name)
        for part, done in operations.items()
        for name in map(content_of, plan.filesystems)
        if (part, name) not in planned and done & filesystem(name).lacks
    )


def part_of(suite: str) -> str:
    """`boot` of `elc2015/boot`; empty for a suite without parts."""
    return suite.partition("/")[2]


def _times(factor: float, figure: float | None) -> float | None:
    return None if figure is None else factor * figure


def _over(factor: float, figure: float | None) -> float | None:
    return factor / figure if figure else None


def _energy(m: Measurement) -> float | None:
    return m.projected.both_mj_per_mib if m.projected else figure_of(m, Metric.ENERGY)


def _cpu_percent(m: Measurement) -> float | None:
    """CPU time of fio's own processes, user and system, over its runtime."""
    return None if m.fio is None else m.fio.usr_cpu_percent + m.fio.sys_cpu_percent


def _bus_percent(m: Measurement) -> float | None:
    """The share of the window in which the device had a request."""
    if m.counters is None or m.counters.busy_ms is None or not m.window_s:
        return None
    return 100 * m.counters.busy_ms / (_MS * m.window_s)


MEASURED: Final[dict[Quantity, Callable[[Measurement], float | None]]] = {
    # With the projected card if there is one, for comparison with boards whose card takes time.
    Quantity.THROUGHPUT: lambda m: m.projected.both_mib_per_s if m.projected else figure_of(m, Metric.THROUGHPUT),
    Quantity.IOPS: lambda m: figure_of(m, Metric.IOPS),
    Quantity.POWER: lambda m: figure_of(m, Metric.POWER),
    Quantity.POWER_SD: lambda m: m.energy.power_sd_w if m.energy else None,
    Quantity.ENERGY: _energy,
    Quantity.OPERATION_ENERGY: lambda m: figure_of(m, Metric.OPERATION_ENERGY),
    Quantity.LATENCY_MAX: lambda m: m.fio.latency_max_ns / 1e6 if m.fio else None,
    Quantity.CPU: _cpu_percent,
    Quantity.PER_CPU_PERCENT: lambda m: _over(m.fio.ios, _cpu_percent(m)) if m.fio else None,
    Quantity.PER_CPU_SECOND: lambda m: _over(1, m.cpu_s_per_mib),
    Quantity.PER_JOULE: lambda m: _over(1000, _energy(m)),
    Quantity.BUS: _bus_percent,
    Quantity.TIME: lambda m: m.duration_s,
    Quantity.UNMOUNT: lambda m: m.unmount_s,
    Quantity.TOGETHER: lambda m: None if m.duration_s is None or m.unmount_s is None else m.duration_s + m.unmount_s,
    Quantity.REAL: lambda m: _times(_MS, m.duration_s),
    Quantity.SYS: lambda m: _times(_MS, m.sys_s),
    Quantity.USER: lambda m: _times(_MS, m.user_s),
    Quantity.TOTAL: lambda m: m.space.total_bytes / MIB if m.space else None,
    Quantity.USED: lambda m: m.space.used_bytes / MIB if m.space else None,
    Quantity.KERNEL_THREADS: lambda m: float(m.space.kernel_threads) if m.space else None,
}

OUTCOMES: Final[dict[Quantity, Callable[[DamageOutcome], bool]]] = {
    Quantity.LOST: lambda o: o.broken > 0,
    Quantity.SILENT: lambda o: bool(o.files.get(FileFate.SILENT) or o.files.get(FileFate.ZEROED)),
    Quantity.DETECTED: lambda o: bool(o.files.get(FileFate.DETECTED) or o.files.get(FileFate.REFUSED)),
    Quantity.UNMOUNTABLE: lambda o: not o.mounts or o.read_only,
}


@dataclass(frozen=True, slots=True)
class Told:
    """A run's answer on one kernel and storage device, and the answers of `published` figures by machine."""

    text: str
    origin: StatementSource
    part: str
    kernel: str
    storage: str
    finding: StatementAnswer
    published: dict[str, StatementAnswer]


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """A run of a publication's suite, or of some of its parts. `parts` are the planned ones, in order."""

    publication: str
    source: str
    remarks: tuple[str, ...]
    parts: tuple[str, ...]
    rows: tuple[RepetitionRow, ...]
    statements: tuple[Told, ...]
    doubts: tuple[Doubt, ...]


def suite_summary(plan: Plan, measurements: Sequence[Measurement]) -> SuiteSummary | None:
    """The comparison; None for a suite of our own. Rows are in the order of the measurements."""
    publication = publication_of(plan.suite)
    if publication is None:
        return None
    rows = rows_of_run(publication, plan, measurements)
    parts = tuple(dict.fromkeys(part_of(suite) for suite in plan.size_factors))
    return SuiteSummary(
        publication=publication.name,
        source=publication.source,
        remarks=publication.remarks,
        parts=parts,
        rows=rows,
        statements=tuple(_told(publication, plan, parts, rows)),
        doubts=tuple(doubt for doubt in publication.doubts if doubt.figure.cell.part in parts),
    )


def _is_about(statement: Statement, plan: Plan) -> bool:
    """Whether to ask a statement: our own expectations need one of their filesystems in the plan."""
    named = {cell.filesystem for cell in statement.rule.cells}
    return statement.origin is not StatementSource.OURS or not named.isdisjoint(map(content_of, plan.filesystems))


def _told(publication: Publication, plan: Plan, parts: Sequence[str], rows: Sequence[RepetitionRow]) -> Iterator[Told]:
    for statement in publication.statements:
        if statement.part not in parts or not _is_about(statement, plan):
            continue
        published = {
            hardware: statement.rule.tell(publication.on(hardware))
            for hardware in statement.hardware
            if statement.origin is not StatementSource.OURS
        }
        of_part = [row for row in rows if row.part == statement.part]
        for kernel in plan.kernels:
            for storage in dict.fromkeys(row.series.storage for row in of_part) or ("",):
                those = [row for row in of_part if (row.kernel, row.series.storage) == (kernel, storage)]
                finding = statement.rule.tell(measured_figures(plan, those))
                yield Told(statement.text, statement.origin, statement.part, kernel, storage, finding, published)
