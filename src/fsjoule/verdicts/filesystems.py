"""Which filesystem of a run is better for each operation: a statement on every two of them in every figure. Pure.

Filesystems on different layers are different sides; what the layers cost is told by `layer_costs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from fsjoule.model import FioWorkload, Measurement, OperationWorkload, SeriesKey, Workload
from fsjoule.model.labels import series_labels
from fsjoule.model.layer import NO_LAYERS
from fsjoule.model.metrics import Metric, Use, figure_of, figure_with_card, fio_metrics, timed_metrics
from fsjoule.model.series import Series
from fsjoule.statistics.figures import complaint
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import Floats
from fsjoule.statistics.superiority import GUEST_TIME, REAL_TIME, SuperiorityRule, SuperiorityStatement, statements
from fsjoule.store.finding import Finding, Subject

# Forty variants in eight operations have 12,480 pairs.
MOST_PAIRS: Final = 20_000

Preferred = Finding[SuperiorityStatement]
"""A figure of two filesystems: the first of a contest is the candidate, the other one the baseline."""


@dataclass(frozen=True, slots=True)
class Contest:
    """The filesystems of a run in one figure of one operation.

    `names` are filesystems, with their options if the run has several sets of them, best mean first. `findings`
    compare the first (the candidate) with each other one (the baseline), in the order of `names`; their means are
    geometric. They hold by the error rate of all pairs of all contests together, so it costs nothing that the figures
    choose the first. `with_card` says that the figure has the time and energy of a projected card in it.
    """

    workload: Workload
    suite: str
    storage: str
    kernel: str
    metric: Metric
    names: tuple[str, ...]
    findings: tuple[Preferred, ...]
    with_card: bool = False

    def those(self, outcome: Outcome) -> dict[str, Preferred]:
        """The other filesystems about which the finding on the first is this, best mean first."""
        pairs = zip(self.names[1:], self.findings, strict=True)
        return {name: one for name, one in pairs if one.outcome is outcome}

    @property
    def has_winner(self) -> bool:
        """Whether the first is shown to be better than all others."""
        return all(one.outcome is Outcome.IMPROVED for one in self.findings)

    @property
    def decided(self) -> bool:
        """Whether the first is shown to be better than each other one, or equal to it."""
        return not self.those(Outcome.UNDECIDED)

    @property
    def more_boots(self) -> int | None:
        """How many further boots decide it, by forecast; None if too many."""
        needed = [one.basis.more_boots for one in self.findings]
        return None if None in needed else max(each for each in needed if each is not None)


def rule_of(*, guest_time: bool) -> SuperiorityRule:
    return GUEST_TIME if guest_time else REAL_TIME


def contests(measurements: Sequence[Measurement], rule: SuperiorityRule | None = None) -> tuple[Contest, ...]:
    """A contest per operation, kernel and figure that at least two filesystems have; invalid measurements are left out.

    They come in the order of the operations' first measurements, speed before energy. All pairs of all contests are
    judged together by `statistics.superiority`. More than MOST_PAIRS are too many to wait for: then there is no
    contest. Figures are paired by repetition: one boot measures all filesystems, or, where the root is measured, one
    boot of each. On a board in guest time, whose card takes no time, the figures are those with the projected card.
    """
    usable = [m for m in measurements if m.valid and isinstance(m.workload, FioWorkload | OperationWorkload)]
    labels = series_labels(m.series for m in usable)
    # By all that makes a series, but the filesystem and its options, and by kernel.
    groups: dict[tuple[SeriesKey, str], list[Measurement]] = {}
    for m in usable:
        operation = replace(m.series, storage=m.series.device, filesystem="", make_options=(), mount_options=())
        groups.setdefault((operation, m.kernel), []).append(m)
    entered = [
        one
        for group in groups.values()
        for metric in (fio_metrics if isinstance(group[0].workload, FioWorkload) else timed_metrics)(Use.MAIN)
        if len((one := _Entered.of(group, metric, labels)).names) > 1
    ]
    if sum(math.comb(len(one.names), 2) for one in entered) > MOST_PAIRS:
        return ()
    chosen = rule or rule_of(guest_time=any(m.projected for m in usable))
    judged = statements([one.differences() for one in entered], chosen)
    return tuple(one.contest(found, chosen) for one, found in zip(entered, judged, strict=True))


def layer_costs(measurements: Sequence[Measurement]) -> tuple[Preferred, ...]:
    """What layers cost: each figure with them (the candidate) against the same without, judged together."""
    groups: dict[tuple[SeriesKey, str], list[Measurement]] = {}
    for m in measurements:
        if m.valid and isinstance(m.workload, FioWorkload | OperationWorkload):
            groups.setdefault((replace(m.series, storage=m.series.device), m.kernel), []).append(m)
    stacks = {m.series: m.series.stack or NO_LAYERS for group in groups.values() for m in group}
    entered = [
        (one, [(name, NO_LAYERS) for name in one.names if name != NO_LAYERS])
        for group in groups.values()
        for metric in (fio_metrics if isinstance(group[0].workload, FioWorkload) else timed_metrics)(Use.MAIN)
        if NO_LAYERS in (one := _Entered.of(group, metric, stacks)).names
    ]
    rule = rule_of(guest_time=any(m.projected for m in measurements))
    judged = statements([one.differences(pairs) for one, pairs in entered], rule)
    return tuple(
        one.finding(*pair, statement, rule)
        for (one, pairs), found in zip(entered, judged, strict=True)
        for pair, statement in zip(pairs, found, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Entered:
    """What enters a contest: logarithms of figures by the filesystem's name and the repetition, best mean first."""

    sample: Measurement
    metric: Metric
    series: Mapping[str, SeriesKey]
    logarithms: Mapping[str, Mapping[int, float]]
    with_card: bool

    @classmethod
    def of(cls, group: Sequence[Measurement], metric: Metric, labels: Mapping[SeriesKey, str]) -> _Entered:
        """A filesystem without any usable figure does not enter."""
        series = {labels[m.series]: m.series for m in group}
        with_card = all(figure_with_card(m, metric) is not None for m in group)
        logarithms: dict[str, dict[int, float]] = {}
        for m in group:
            figure = figure_with_card(m, metric) if with_card else figure_of(m, metric)
            if figure is not None and complaint(figure) is None:
                logarithms.setdefault(labels[m.series], {})[m.repetition] = math.log(figure)
        means = {name: float(np.mean(list(boots.values()))) for name, boots in logarithms.items()}
        ordered = sorted(means, key=means.__getitem__, reverse=metric.more_is_better)
        return cls(group[0], metric, series, {name: logarithms[name] for name in ordered}, with_card)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.logarithms)

    def differences(self, pairs: Iterable[tuple[str, str]] | None = None) -> list[Floats]:
        """Of pairs of names: every two, the better mean first, so that the first's against all others begin."""
        sign = 1.0 if self.metric.more_is_better else -1.0
        differences: list[Floats] = []
        for first, second in combinations(self.logarithms, 2) if pairs is None else pairs:
            better, worse = self.logarithms[first], self.logarithms[second]
            boots = [boot for boot in better if boot in worse]
            differences.append(sign * np.array([better[boot] - worse[boot] for boot in boots], dtype=np.float64))
        return differences

    def contest(self, judged: Sequence[SuperiorityStatement], rule: SuperiorityRule) -> Contest:
        first, *others = self.names
        return Contest(
            workload=self.sample.workload,
            suite=self.sample.series.suite,
            storage=self.sample.series.device,
            kernel=self.sample.kernel,
            metric=self.metric,
            names=self.names,
            findings=tuple(self.finding(first, other, one, rule) for other, one in zip(others, judged, strict=False)),
            with_card=self.with_card,
        )

    def finding(self, better: str, worse: str, statement: SuperiorityStatement, rule: SuperiorityRule) -> Preferred:
        series, simulated = self.series[better], self.sample.simulated
        label = f"{better} against {worse}, {self.sample.workload.label}"
        ratio, interval = statement.change(more_is_better=self.metric.more_is_better)
        return Finding(
            subject=Subject(Series(series, simulated).key, series, simulated, label, self.sample.kernel),
            metric=self.metric,
            outcome=statement.outcome,
            ratio=ratio,
            interval=interval,
            matters=rule.equal_within,
            baseline=self._mean(worse),
            candidate=self._mean(better),
            boots=(statement.boots, statement.boots),
            basis=statement,
        )

    def _mean(self, name: str) -> float:
        return math.exp(float(np.mean(list(self.logarithms[name].values()))))


def beaten_by(choices: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Each choice with one that beats it: nowhere worse, somewhere better. Empty for those that none beats: the front.

    All have the same number of figures. Of several that beat a choice it is the first that none beats. Equal choices
    do not beat each other.
    """

    def beats(one: str, other: str) -> bool:
        pairs = list(zip(choices[one], choices[other], strict=True))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    front = [name for name in choices if not any(beats(other, name) for other in choices)]
    return {name: next((each for each in front if beats(each, name)), "") for name in choices}
