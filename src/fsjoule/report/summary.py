"""Aggregates measurements over repetitions into the rows of every table. Pure.

Figures are the mean of the valid repetitions with their sample standard deviation (n - 1). Invalid measurements are
counted and named, never averaged in. Rows on filesystems' survival count outcomes instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fsjoule.model import (
    MIB,
    CrashWorkload,
    DamageOutcome,
    FileFate,
    FioWorkload,
    FlakeyWorkload,
    HeldWorkload,
    Measurement,
    OperationWorkload,
    PowerLossWorkload,
    Run,
    SampleCounts,
    SeriesKey,
)
from fsjoule.model.filesystem import content_of
from fsjoule.model.labels import series_labels
from fsjoule.model.layer import base_of
from fsjoule.model.metrics import Metric, figure_of, figure_with_card, uncertainty_of
from fsjoule.statistics.spread import Spread, clopper_pearson, spread_of
from fsjoule.suites.published.catalogue import PublishedRow, row_for
from fsjoule.suites.published.measured import SuiteSummary, suite_summary
from fsjoule.verdicts.filesystems import Preferred, layer_costs

# The order of phases in tables; a run's further phases follow.
MEASURING: Final = ("fio", "timed", "flakey", "power-loss", "survey")
_PHASES: Final = ("setup", "flash", "boot", "provisioning", *MEASURING, "idle", "reading", "other")
_BOARD_ON: Final = "board_on"

W = TypeVar("W", FioWorkload, OperationWorkload, HeldWorkload)
W_co = TypeVar("W_co", FioWorkload, OperationWorkload, HeldWorkload, covariant=True)


@dataclass(frozen=True, slots=True)
class Projected:
    """A card's projected time and energy. `figures` have the measured part followed by the card's."""

    card: str
    requests_per_mib: Spread | None
    card_mib_per_s: Spread | None
    card_mj_per_mib: Spread | None
    figures: Mapping[Metric, Spread]


@dataclass(frozen=True, slots=True)
class SummaryRow(Generic[W_co]):
    """One series on one kernel. `label` is the filesystem, with its options if the run has several.

    `figures` are those that a valid repetition has. `uncertainties` are the meter's standard ones (k=1), the same for
    all repetitions. `projected` is known on a board whose own card takes no time.
    """

    label: str
    kernel: str
    series: SeriesKey
    workload: W_co
    valid: int
    invalid: int
    figures: Mapping[Metric, Spread]
    uncertainties: Mapping[Metric, float]
    idle_power_w: Spread | None
    projected: Projected | None
    published: PublishedRow | None

    def with_card(self, metric: Metric) -> Spread | None:
        """The figure with the card's projected part, if there is one."""
        return (self.figures if self.projected is None else self.projected.figures).get(metric)

    @property
    def throughput_ratio(self) -> float | None:
        return _ratio(self.with_card(Metric.THROUGHPUT), self.published and self.published.throughput_mib_per_s)

    @property
    def energy_ratio(self) -> float | None:
        return _ratio(self.with_card(Metric.ENERGY), self.published and self.published.energy_mj_per_mib)


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
    a run of a publication's suite with the publication; `layers` is what layers cost.
    """

    run: Run
    simulated: bool
    measured: int
    fio: tuple[SummaryRow[FioWorkload], ...]
    timed: tuple[SummaryRow[OperationWorkload], ...]
    held: tuple[SummaryRow[HeldWorkload], ...]
    outcomes: tuple[OutcomeRow, ...]
    crashes: tuple[Measurement, ...]
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
    layers: tuple[Preferred, ...] = ()

    @property
    def several_parts(self) -> bool:
        return len({entry.suite for entry in self.run.plan.entries}) > 1

    @property
    def several_storages(self) -> bool:
        return len({base_of(entry.storage) for entry in self.run.plan.entries}) > 1

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
    fio: list[SummaryRow[FioWorkload]] = []
    timed: list[SummaryRow[OperationWorkload]] = []
    held: list[SummaryRow[HeldWorkload]] = []
    outcomes: list[OutcomeRow] = []
    for (series, _), group in groups.items():
        match group[0].workload:
            case FioWorkload() as workload:
                fio.append(_row(labels[series], workload, group))
            case PowerLossWorkload() | FlakeyWorkload() as workload:
                outcomes.append(_outcome_row(labels[series], workload, group))
            case HeldWorkload() as workload:
                held.append(_row(labels[series], workload, group))
            case CrashWorkload():
                pass  # it has a section of its own
            case workload:
                timed.append(_row(labels[series], workload, group))
    phases, board_on_s, utilisation = _time(run.phases_s)
    return Summary(
        run=run,
        simulated=run.simulated or any(m.simulated for m in measurements),
        measured=len(measurements),
        fio=tuple(fio),
        timed=tuple(timed),
        held=tuple(held),
        outcomes=tuple(outcomes),
        crashes=tuple(m for group in groups.values() for m in group if m.crash is not None),
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
        layers=layer_costs(measurements),
    )


def _grouped(run: Run, measurements: Sequence[Measurement]) -> dict[tuple[SeriesKey, str], list[Measurement]]:
    groups: dict[tuple[SeriesKey, str], list[Measurement]] = {}
    for measurement in measurements:
        groups.setdefault((measurement.series, measurement.kernel), []).append(measurement)
    filesystems = {content_of(name): i for i, name in enumerate(run.plan.filesystems)}
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
            key.storage,
            kernels.get(kernel, len(kernels)),
            kernel,
        )

    return {group: groups[group] for group in sorted(groups, key=rank)}


def _spread(group: Iterable[Measurement], get: Callable[[Measurement], float | None]) -> Spread | None:
    """The spread over valid measurements that have the figure."""
    return spread_of(get(m) for m in group if m.valid)


def _spreads(
    group: Sequence[Measurement], get: Callable[[Measurement, Metric], float | None]
) -> Mapping[Metric, Spread]:
    spreads = ((metric, _spread(group, lambda m, metric=metric: get(m, metric))) for metric in Metric)
    return {metric: spread for metric, spread in spreads if spread is not None}


def _row(label: str, workload: W, group: Sequence[Measurement]) -> SummaryRow[W]:
    key = group[0].series
    return SummaryRow(
        label=label,
        kernel=group[0].kernel,
        series=key,
        workload=workload,
        valid=sum(m.valid for m in group),
        invalid=sum(not m.valid for m in group),
        figures=_spreads(group, figure_of),
        uncertainties={metric: spread.mean for metric, spread in _spreads(group, uncertainty_of).items()},
        idle_power_w=_spread(group, lambda m: m.energy.idle_power_w.value if m.energy else None),
        projected=_projected(group),
        published=row_for(key.suite, key.filesystem, workload),
    )


def _projected(group: Sequence[Measurement]) -> Projected | None:
    cards = sorted({m.projected.card for m in group if m.projected})
    if not cards:
        return None
    return Projected(
        card=", ".join(cards),
        requests_per_mib=_spread(group, _requests_per_mib),
        card_mib_per_s=_spread(group, lambda m: m.projected.card_mib_per_s if m.projected else None),
        card_mj_per_mib=_spread(group, lambda m: m.projected.card_mj_per_mib if m.projected else None),
        figures=_spreads(group, figure_with_card),
    )


def _requests_per_mib(measurement: Measurement) -> float | None:
    counters, fio = measurement.counters, measurement.fio
    if counters is None or fio is None or not fio.io_bytes:
        return None
    return (counters.reads + counters.writes) * MIB / fio.io_bytes


def _ratio(measured: Spread | None, published: float | None) -> float | None:
    return measured.mean / published if measured and published else None


def _remarks(run: Run, measurements: Sequence[Measurement]) -> tuple[Remark, ...]:
    """What names do not tell, notes of measurements, and faults that cost a try or prevented a measurement."""
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
        for note in filter(None, (measurement.workload.explained, *measurement.notes)):
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


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One series on one kernel. `valid` counts its iterations, `invalid` those that the framework lost.

    An iteration failed if a promised file is not intact, or the filesystem cannot be mounted for writing; `rate` is the
    95 % interval (Clopper, Pearson) of that share. `files` counts the files of all iterations by fate. `unmountable`,
    `read_only`, `unclean`, `complained` and `repaired` count iterations: `unclean` those among the `checked`,
    `repaired` those among the `repairs` that were tried.
    """

    label: str
    kernel: str
    series: SeriesKey
    workload: PowerLossWorkload | FlakeyWorkload
    valid: int
    invalid: int
    failed: int
    rate: tuple[float, float]
    files: dict[FileFate, int]
    unmountable: int
    read_only: int
    checked: int
    unclean: int
    complained: int
    repairs: int
    repaired: int

    @property
    def promised(self) -> int:
        """Files of all iterations whose sync had returned."""
        return sum(self.files.values())


def _outcome_row(label: str, workload: PowerLossWorkload | FlakeyWorkload, group: Sequence[Measurement]) -> OutcomeRow:
    outcomes = [m.outcome for m in group if m.valid and m.outcome is not None]
    failed = sum(each.failed for each in outcomes)
    files = Counter[FileFate]()
    for each in outcomes:
        files.update(each.files)
    checked = [each for each in outcomes if each.check_clean is not None]
    repairs = [each for each in outcomes if each.repaired is not None]
    return OutcomeRow(
        label=label,
        kernel=group[0].kernel,
        series=group[0].series,
        workload=workload,
        valid=len(outcomes),
        invalid=len(group) - len(outcomes),
        failed=failed,
        rate=clopper_pearson(failed, len(outcomes)),
        files={fate: files[fate] for fate in FileFate if files[fate]},
        unmountable=sum(not each.mounts for each in outcomes),
        read_only=sum(each.read_only for each in outcomes),
        checked=len(checked),
        unclean=sum(not each.check_clean for each in checked),
        complained=sum(bool(each.messages) for each in outcomes),
        repairs=len(repairs),
        repaired=sum(bool(each.repaired) for each in repairs),
    )


def outcome_text(outcome: DamageOutcome) -> str:
    """`14 files: 12 intact, 2 missing; mounts`."""
    fates = ", ".join(f"{count} {fate.value}" for fate, count in outcome.files.items()) or "none"
    mounts = "read-only" if outcome.read_only else "mounts" if outcome.mounts else "does not mount"
    words = [f"{outcome.promised} files: {fates}", mounts]
    words += ["checker finds faults"] if outcome.check_clean is False else []
    words += [] if outcome.repaired is None else ["repaired" if outcome.repaired else "not repaired"]
    return "; ".join(words)
