"""Aggregates measurements over repetitions into the rows of every table. Pure.

Figures are the mean of the valid repetitions with their sample standard deviation (n - 1). Invalid measurements are
counted and named, never averaged in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.model import MIB, FioWorkload, Measurement, Projection, Run, SampleCounts, SeriesKey, TimedWorkload
from fsjoule.model.labels import series_labels
from fsjoule.report.outcomes import OutcomeRow, outcome_row
from fsjoule.statistics.spread import Spread, spread_of
from fsjoule.suites.published.catalogue import PublishedRow, row_for
from fsjoule.suites.published.summary import SuiteSummary, suite_summary

# The order of phases in tables; a run's further phases follow.
MEASURING: Final = ("fio", "timed", "flakey", "power-loss", "survey")
_PHASES: Final = ("setup", "flash", "boot", "provisioning", *MEASURING, "idle", "reading", "other")
_BOARD_ON: Final = "board_on"


@dataclass(frozen=True, slots=True)
class Row:
    """One series on one kernel. `label` is the filesystem, with its options if the run has several."""

    label: str
    kernel: str
    series: SeriesKey
    valid: int
    invalid: int
    power_w: Spread | None
    idle_power_w: Spread | None


@dataclass(frozen=True, slots=True)
class Projected:
    """A card's projected time and energy; `both_*` is the measured part followed by the card's."""

    card: str
    requests_per_mib: Spread | None
    card_mib_per_s: Spread | None
    card_mj_per_mib: Spread | None
    both_mib_per_s: Spread | None
    both_mj_per_mib: Spread | None


@dataclass(frozen=True, slots=True)
class FioRow(Row):
    """One fio workload on one filesystem. Ratios are `with_card` over published.

    `energy_uncertainty_mj_per_mib` is the meter's standard uncertainty (k=1), the same for all repetitions.
    """

    workload: FioWorkload
    throughput_mib_per_s: Spread | None
    iops: Spread | None
    energy_mj_per_mib: Spread | None
    energy_net_mj_per_mib: Spread | None
    energy_uncertainty_mj_per_mib: float | None
    write_amplification: Spread | None
    cpu_s_per_mib: Spread | None
    latency_p99_ms: Spread | None
    projected: Projected | None
    published: PublishedRow | None

    @property
    def throughput_ratio(self) -> float | None:
        return _ratio(self.with_card[0], self.published and self.published.throughput_mib_per_s)

    @property
    def energy_ratio(self) -> float | None:
        return _ratio(self.with_card[1], self.published and self.published.energy_mj_per_mib)

    @property
    def with_card(self) -> tuple[Spread | None, Spread | None]:
        """Throughput and energy per MiB, with the card's projected part if there is one."""
        if self.projected is None:
            return self.throughput_mib_per_s, self.energy_mj_per_mib
        return self.projected.both_mib_per_s, self.projected.both_mj_per_mib


@dataclass(frozen=True, slots=True)
class TimedRow(Row):
    """One timed operation on one filesystem; energies are per operation.

    `projected_*` have a card's projected time and energy in them, on a board whose own card takes no time.
    """

    workload: TimedWorkload
    duration_s: Spread | None
    energy_mj: Spread | None
    energy_net_mj: Spread | None
    projected_s: Spread | None
    projected_mj: Spread | None

    @property
    def with_card(self) -> tuple[Spread | None, Spread | None]:
        """Time and energy, with the card's projected part if there is one."""
        return self.projected_s or self.duration_s, self.projected_mj or self.energy_mj


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run's time; `share` is a fraction of all phases."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Remark:
    text: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A report's content about a whole run.

    `damaged` maps measurement folders to the reason why they were left out, `altered` other files of measurements to
    what has become of them since they were stored; `size_factors` is empty if the suite is not scaled; `suite` compares
    a run of a publication's suite with the publication.
    """

    run: Run
    simulated: bool
    measured: int
    fio: tuple[FioRow, ...]
    timed: tuple[TimedRow, ...]
    outcomes: tuple[OutcomeRow, ...]
    invalid: tuple[Measurement, ...]
    remarks: tuple[Remark, ...]
    damaged: Mapping[str, str]
    altered: Mapping[str, str]
    samples: SampleCounts
    phases: tuple[Phase, ...]
    board_on_s: float | None
    utilisation: float | None
    sources: tuple[str, ...]
    size_factors: Mapping[str, float]
    suite: SuiteSummary | None

    @property
    def several_parts(self) -> bool:
        return len({entry.suite for entry in self.run.plan.entries}) > 1

    @property
    def several_storages(self) -> bool:
        return len({entry.storage for entry in self.run.plan.entries}) > 1

    @property
    def several_kernels(self) -> bool:
        return len(self.run.plan.kernels) > 1


def summarise(
    run: Run,
    measurements: Sequence[Measurement],
    damaged: Mapping[str, str] | None = None,
    altered: Mapping[str, str] | None = None,
) -> Summary:
    """Aggregate a run's measurements by series and kernel, in the order of operations, filesystems and kernels."""
    groups = _grouped(run, measurements)
    labels = series_labels(series for series, _ in groups)
    fio: list[FioRow] = []
    timed: list[TimedRow] = []
    outcomes: list[OutcomeRow] = []
    for (series, _), group in groups.items():
        match group[0].workload:
            case FioWorkload() as workload:
                fio.append(_fio_row(labels[series], workload, group))
            case TimedWorkload() as workload:
                timed.append(_timed_row(labels[series], workload, group))
            case workload:
                outcomes.append(outcome_row(labels[series], workload, group))
    phases, board_on_s, utilisation = _time(run.phases_s)
    return Summary(
        run=run,
        simulated=run.simulated or any(m.simulated for m in measurements),
        measured=len(measurements),
        fio=tuple(fio),
        timed=tuple(timed),
        outcomes=tuple(outcomes),
        invalid=tuple(m for m in measurements if not m.valid),
        remarks=_remarks(run, measurements),
        damaged=dict(damaged or {}),
        altered=dict(altered or {}),
        samples=_samples(measurements),
        phases=phases,
        board_on_s=board_on_s,
        utilisation=utilisation,
        sources=tuple(dict.fromkeys(row.published.source for row in fio if row.published)),
        size_factors=run.plan.size_factors,
        suite=suite_summary(run.plan, [m for group in groups.values() for m in group]),
    )


def _grouped(run: Run, measurements: Sequence[Measurement]) -> dict[tuple[SeriesKey, str], list[Measurement]]:
    groups: dict[tuple[SeriesKey, str], list[Measurement]] = {}
    for measurement in measurements:
        groups.setdefault((measurement.series, measurement.kernel), []).append(measurement)
    filesystems = {name: i for i, name in enumerate(run.plan.filesystems)}
    kernels = {label: i for i, label in enumerate(run.plan.kernels)}
    suites = {name: i for i, name in enumerate(run.plan.size_factors)}

    def rank(group: tuple[SeriesKey, str]) -> tuple[object, ...]:
        key, kernel = group
        options = (key.make_options, key.mount_options)
        filesystem = (filesystems.get(key.filesystem, len(filesystems)), key.filesystem, options)
        return (
            suites.get(key.suite, len(suites)),
            *groups[group][0].workload.order,
            key.workload,
            *filesystem,
            kernels.get(kernel, len(kernels)),
            kernel,
        )

    return {group: groups[group] for group in sorted(groups, key=rank)}


def _spread(group: Iterable[Measurement], get: Callable[[Measurement], float | None]) -> Spread | None:
    """The spread over valid measurements that have the figure."""
    return spread_of(get(m) for m in group if m.valid)


def _mean(group: Iterable[Measurement], get: Callable[[Measurement], float | None]) -> float | None:
    spread = _spread(group, get)
    return None if spread is None else spread.mean


def _fio_row(label: str, workload: FioWorkload, group: Sequence[Measurement]) -> FioRow:
    key = group[0].series
    return FioRow(
        label=label,
        kernel=group[0].kernel,
        series=key,
        valid=sum(m.valid for m in group),
        invalid=sum(not m.valid for m in group),
        power_w=_spread(group, _power_w),
        idle_power_w=_spread(group, _idle_power_w),
        workload=workload,
        throughput_mib_per_s=_spread(group, lambda m: m.throughput_mib_per_s),
        iops=_spread(group, lambda m: m.iops),
        energy_mj_per_mib=_spread(group, lambda m: m.energy_mj_per_mib.value if m.energy_mj_per_mib else None),
        energy_net_mj_per_mib=_spread(
            group, lambda m: m.energy_net_mj_per_mib.value if m.energy_net_mj_per_mib else None
        ),
        energy_uncertainty_mj_per_mib=_mean(
            group, lambda m: m.energy_mj_per_mib.uncertainty if m.energy_mj_per_mib else None
        ),
        write_amplification=_spread(group, lambda m: m.write_amplification),
        cpu_s_per_mib=_spread(group, lambda m: m.cpu_s_per_mib),
        latency_p99_ms=_spread(group, lambda m: m.fio.p99_ms if m.fio else None),
        projected=_projected(group),
        published=row_for(key.suite, key.filesystem, workload),
    )


def _timed_row(label: str, workload: TimedWorkload, group: Sequence[Measurement]) -> TimedRow:
    return TimedRow(
        label=label,
        kernel=group[0].kernel,
        series=group[0].series,
        valid=sum(m.valid for m in group),
        invalid=sum(not m.valid for m in group),
        power_w=_spread(group, _power_w),
        idle_power_w=_spread(group, _idle_power_w),
        workload=workload,
        duration_s=_spread(group, lambda m: m.duration_s),
        energy_mj=_spread(group, lambda m: m.energy.gross_mj.value if m.energy else None),
        energy_net_mj=_spread(group, lambda m: m.energy.net_mj.value if m.energy else None),
        projected_s=_spread(group, lambda m: m.projected.both_s if m.projected else None),
        projected_mj=_spread(group, lambda m: m.projected.both_mj if m.projected else None),
    )


def _projected(group: Sequence[Measurement]) -> Projected | None:
    cards = sorted({m.projected.card for m in group if m.projected})
    if not cards:
        return None

    def spread(get: Callable[[Projection], float | None]) -> Spread | None:
        return _spread(group, lambda m: get(m.projected) if m.projected else None)

    return Projected(
        card=", ".join(cards),
        requests_per_mib=_spread(group, _requests_per_mib),
        card_mib_per_s=spread(lambda p: p.card_mib_per_s),
        card_mj_per_mib=spread(lambda p: p.card_mj_per_mib),
        both_mib_per_s=spread(lambda p: p.both_mib_per_s),
        both_mj_per_mib=spread(lambda p: p.both_mj_per_mib),
    )


def _requests_per_mib(measurement: Measurement) -> float | None:
    counters, fio = measurement.counters, measurement.fio
    if counters is None or fio is None or not fio.io_bytes:
        return None
    return (counters.reads + counters.writes) * MIB / fio.io_bytes


def _ratio(measured: Spread | None, published: float | None) -> float | None:
    return measured.mean / published if measured and published else None


def _power_w(measurement: Measurement) -> float | None:
    return measurement.energy.mean_power_w.value if measurement.energy else None


def _idle_power_w(measurement: Measurement) -> float | None:
    return measurement.energy.idle_power_w.value if measurement.energy else None


def _remarks(run: Run, measurements: Sequence[Measurement]) -> tuple[Remark, ...]:
    """Notes of measurements, and faults that cost a try or prevented a measurement."""
    numbers: dict[str, list[int]] = {}
    taken = {measurement.number for measurement in measurements}
    for fault in run.faults:
        why = fault.what.partition("\n")[0]
        if fault.number not in taken and why in (run.abort_reason or ""):
            continue  # it stands there
        said = f"tried twice: {why}" if fault.number in taken else f"failed: {why}"
        if fault.number not in numbers.setdefault(said, []):
            numbers[said].append(fault.number)
    for measurement in measurements:
        for note in measurement.notes:
            numbers.setdefault(note, []).append(measurement.number)
    return tuple(Remark(text, tuple(found)) for text, found in numbers.items())


def _samples(measurements: Iterable[Measurement]) -> SampleCounts:
    counts = [m.samples for m in measurements if m.samples]
    return SampleCounts(
        expected=sum(c.expected for c in counts),
        received=sum(c.received for c in counts),
        missed=sum(c.missed for c in counts),
        lost=sum(c.lost for c in counts),
    )


def _time(phases_s: Mapping[str, float]) -> tuple[tuple[Phase, ...], float | None, float | None]:
    """Phases with shares, the seconds the board was on, and its utilisation: measuring time over on time."""
    names = [*_PHASES, *(name for name in phases_s if name not in (*_PHASES, _BOARD_ON))]
    spent = {name: phases_s[name] for name in names if name in phases_s}
    total = sum(spent.values())
    phases = tuple(Phase(name, seconds, seconds / total if total else 0.0) for name, seconds in spent.items())
    board_on_s = phases_s.get(_BOARD_ON)
    measuring_s = sum(phases_s.get(name, 0.0) for name in MEASURING)
    return phases, board_on_s, measuring_s / board_on_s if board_on_s else None
