"""Which filesystem of a run is better for each operation: every two of them are compared as two kernels are. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from fsjoule.model import FioWorkload, Measurement, SeriesKey, TimedWorkload, Workload
from fsjoule.model.labels import series_labels
from fsjoule.model.metrics import Figure, Metric, figure_of
from fsjoule.statistics.comparison import Comparison, compare
from fsjoule.statistics.criteria import Criteria
from fsjoule.statistics.figures import one_per_boot
from fsjoule.store.index.serieskeys import IndexedSeries
from fsjoule.verdicts.compare import judged, median
from fsjoule.verdicts.comparison import Judged
from fsjoule.verdicts.finding import Subject

# Forty variants in eight operations have 12,480 pairs: 9 s of CPU time with one boot, 48 s with twelve.
MOST_PAIRS: Final = 20_000
# Speed and energy of a fio job and of a timed operation. With every further figure each would need more boots.
_FIO: Final = (Metric.THROUGHPUT, Metric.ENERGY)
_TIMED: Final = (Metric.DURATION, Metric.OPERATION_ENERGY)


@dataclass(frozen=True, slots=True)
class Contest:
    """The filesystems of a run in one figure of one operation.

    `names` are filesystems, with their options if the run has several sets of them, best median first. `findings`
    compare the first (the candidate) with each other one (the baseline), in the order of `names`. They hold by the
    error rates of all pairs of all contests together, so it costs nothing that the figures choose the first.
    """

    workload: Workload
    suite: str
    storage: str
    kernel: str
    metric: Metric
    names: tuple[str, ...]
    findings: tuple[Judged, ...]

    @property
    def behind(self) -> dict[str, Judged]:
        """The filesystems that are shown to be worse than the first, best median first."""
        return {name: one for name, one in zip(self.names[1:], self.findings, strict=True) if one.changed}

    @property
    def level(self) -> dict[str, Judged]:
        """The filesystems that are not shown to be worse than the first: too few boots, too much noise, or alike."""
        return {name: one for name, one in zip(self.names[1:], self.findings, strict=True) if not one.changed}

    @property
    def decided(self) -> bool:
        """Whether the first is shown to be better than all others."""
        return not self.level


def contests(measurements: Sequence[Measurement], criteria: Criteria | None = None) -> tuple[Contest, ...]:
    """A contest per operation, kernel and figure that at least two filesystems have; invalid measurements are left out.

    They come in the order of the operations' first measurements, speed before energy. All pairs of all contests are
    one request of `statistics.compare`, whose error rates hold for them together. More than MOST_PAIRS are too many to
    wait for: then there is no contest. One boot measures all filesystems, so their figures share what is particular to
    it; the rank test, which ignores that, is then on the safe side.
    """
    wanted = criteria or Criteria()
    usable = [m for m in measurements if m.valid and isinstance(m.workload, FioWorkload | TimedWorkload)]
    labels = series_labels(m.series for m in usable)
    guest_time = _in_guest_time(usable)
    entered = [
        one
        for group in _groups(usable).values()
        for metric in (_FIO if isinstance(group[0].workload, FioWorkload) else _TIMED)
        if len((one := _Entered.of(group, metric, labels)).figures) > 1
    ]
    if sum(math.comb(len(one.figures), 2) for one in entered) > MOST_PAIRS:
        return ()
    pairs = [one.pairs() for one in entered]
    verdicts = iter(compare([pair for each in pairs for pair in each], wanted))
    return tuple(
        one.contest([judged(pair, next(verdicts), wanted, guest_time=guest_time) for pair in each])
        for one, each in zip(entered, pairs, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Entered:
    """What enters a contest: `figures` are one per boot, by the filesystem's name, best median first."""

    sample: Measurement
    metric: Metric
    series: Mapping[str, SeriesKey]
    figures: Mapping[str, tuple[Figure, ...]]

    @classmethod
    def of(cls, group: Sequence[Measurement], metric: Metric, labels: Mapping[SeriesKey, str]) -> _Entered:
        """A filesystem without any usable figure does not enter."""
        series = {labels[m.series]: m.series for m in group}
        boots: dict[str, list[tuple[int, Figure]]] = {}
        for m in group:
            boots.setdefault(labels[m.series], []).append((m.boot, figure_of(m, metric)))
        figures = {name: one_per_boot(each) for name, each in boots.items()}
        medians = {name: found for name, each in figures.items() if (found := median(each)) is not None}
        ordered = sorted(medians, key=medians.__getitem__, reverse=metric.more_is_better)
        return cls(group[0], metric, series, {name: figures[name] for name in ordered})

    def pairs(self) -> list[Comparison[Subject]]:
        """Every two filesystems, the better median as the candidate: the first's against all others begin."""
        return [
            Comparison(self._subject(better, worse), self.metric, self.figures[worse], self.figures[better])
            for better, worse in combinations(self.figures, 2)
        ]

    def _subject(self, better: str, worse: str) -> Subject:
        series = self.series[better]
        simulated = self.sample.simulated
        label = f"{better} against {worse}, {self.sample.workload.label}"
        return Subject(IndexedSeries(series, simulated).key, series, simulated, label, self.sample.kernel)

    def contest(self, findings: Sequence[Judged]) -> Contest:
        names = tuple(self.figures)
        return Contest(
            workload=self.sample.workload,
            suite=self.sample.series.suite,
            storage=self.sample.series.storage,
            kernel=self.sample.kernel,
            metric=self.metric,
            names=names,
            findings=tuple(findings[: len(names) - 1]),
        )


def _groups(measurements: Iterable[Measurement]) -> dict[tuple[SeriesKey, str], list[Measurement]]:
    """Measurements by all that makes a series, but the filesystem and its options, and by kernel."""
    groups: dict[tuple[SeriesKey, str], list[Measurement]] = {}
    for m in measurements:
        operation = replace(m.series, filesystem="", make_options=(), mount_options=())
        groups.setdefault((operation, m.kernel), []).append(m)
    return groups


def _in_guest_time(measurements: Sequence[Measurement]) -> bool:
    """Whether these are single boots on a board whose card takes no time, so that they have projections."""
    boots: dict[tuple[SeriesKey, str], set[int]] = {}
    for m in measurements:
        boots.setdefault((m.series, m.kernel), set()).add(m.boot)
    return any(m.projected for m in measurements) and all(len(each) == 1 for each in boots.values())
