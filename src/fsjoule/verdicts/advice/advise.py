"""Judges which filesystems differ on each axis, and in which order they are advised. Pure.

Energy, wait and wear are paired by boot, and judged as a run's answer is (`statistics.superiority`). The three axes
share the rate of false statements, and each has its own noise. Losses and mounts are of power cuts, which nothing
pairs: they are judged with the rank test of `fsjoule compare`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations
from typing import Final

import numpy as np

from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric
from fsjoule.statistics.comparison import Comparison, compare
from fsjoule.statistics.estimate import Estimate
from fsjoule.statistics.outcome import Criteria, Outcome
from fsjoule.statistics.ratios import Floats, Interval
from fsjoule.statistics.superiority import GUEST_TIME, REAL_TIME, SuperiorityRule, SuperiorityStatement, statements
from fsjoule.store.reader import LoadedRun
from fsjoule.suites.profile import UsageProfile, profile_names, profile_of
from fsjoule.verdicts.advice.evidence import AdviceEvidence, Boot, evidence_of
from fsjoule.verdicts.advice.figures import FilesystemFigures, figures_of
from fsjoule.verdicts.advice.parts import parts_of


class Axis(StrEnum):
    """What is weighed; less is better on all of them."""

    ENERGY = "energy"
    LOSS = "loss"
    WAIT = "wait"
    WEAR = "wear"
    MOUNT = "mount"


# Axes without which a filesystem would not be advised; a mount after a cut is shown, and decides nothing.
DECISIVE: Final = (Axis.ENERGY, Axis.LOSS, Axis.WAIT, Axis.WEAR)
# Of boots, so that boots of two filesystems are pairs. The others are of power cuts.
PAIRED: Final = (Axis.ENERGY, Axis.WAIT, Axis.WEAR)
# Filesystems without which a run's page has no advice.
_LEAST_IN_A_RUN: Final = 2


@dataclass(frozen=True, slots=True)
class Relation:
    """Two filesystems on one axis: `less` is the label of the one that is shown to be less, None if neither is.

    `same`: a difference that matters is excluded. `ratio` is other over one, with its 95 % interval; None where it is
    not known. `more` is a forecast of the further boots (or cuts) of each that decide; None if none would help.
    """

    axis: Axis
    one: str
    other: str
    less: str | None
    same: bool
    ratio: float | None = None
    interval: Interval | None = None
    more: int | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """The weighted mean of a filesystem's figures, each over the largest on its axis: 0 is best, 1 worst."""

    label: str
    value: Estimate


@dataclass(frozen=True, slots=True)
class Advice:
    """Figures and relations of all filesystems. `scores` is empty without weights, and lists the lowest first."""

    profile_name: str
    profile: UsageProfile
    evidence: AdviceEvidence
    figures: tuple[FilesystemFigures, ...]
    relations: tuple[Relation, ...]
    rule: SuperiorityRule
    criteria: Criteria
    weights: Mapping[Axis, float]
    scores: tuple[Score, ...]
    # By axis and label: pages of 40 filesystems ask thousands of relations thousands of times.
    _less: Mapping[tuple[Axis, str], list[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        less: dict[tuple[Axis, str], list[str]] = {}
        for one in self.relations:
            if one.less is not None:
                more = one.other if one.less == one.one else one.one
                less.setdefault((one.axis, more), []).append(one.less)
        object.__setattr__(self, "_less", less)

    def less(self, axis: Axis, label: str) -> tuple[str, ...]:
        """The filesystems that are shown to be less than this one."""
        return tuple(self._less.get((axis, label), ()))

    @property
    def sensible(self) -> tuple[FilesystemFigures, ...]:
        """The filesystems that no other is shown to beat on an axis without losing to it on another."""
        return tuple(one for one in self.figures if not any(self._beats(other, one) for other in self.figures))

    @property
    def unsafe(self) -> tuple[FilesystemFigures, ...]:
        """The filesystems that lost synced files, or that send no flushes; none if all do. They are the last choice."""
        found = tuple(one for one in self.figures if one.loses_files)
        return found if len(found) < len(self.figures) else ()

    @property
    def ranked(self) -> tuple[FilesystemFigures, ...]:
        """All filesystems, the first choice first: by score, else sensible ones, what they beat, unsafe ones."""
        if self.scores:
            order = [score.label for score in self.scores]
            return tuple(sorted(self.figures, key=lambda one: _place(one.label, order)))
        unsafe, sensible = self.unsafe, self.sensible
        return tuple(
            sorted(
                self.figures,
                key=lambda one: (one in unsafe, one not in sensible, -len(self.speaking(one))),
            )
        )

    def speaking(self, one: FilesystemFigures) -> tuple[Axis, ...]:
        """The axes on which it is shown to be less than another sensible one, and none to be less than it.

        If there is only one sensible filesystem, less than any other. Unsafe ones are no measure for others.
        """
        unsafe = self.unsafe
        sensible = [each for each in self.sensible if one in unsafe or each not in unsafe]
        others = sensible if len(sensible) > 1 else self.figures
        rivals = {each.label for each in self.figures if one in unsafe or each not in unsafe}
        return tuple(
            axis
            for axis in DECISIVE
            if on_axis(one, axis) is not None
            and not rivals.intersection(self.less(axis, one.label))
            and any(one.label in self.less(axis, other.label) for other in others)
        )

    def _beats(self, one: FilesystemFigures, other: FilesystemFigures) -> bool:
        if one.loses_files and not other.loses_files:
            return False  # whatever it saves
        wins = any(one.label in self.less(axis, other.label) for axis in DECISIVE)
        loses = any(other.label in self.less(axis, one.label) for axis in DECISIVE)
        return wins and not loses


def _place(label: str, order: Sequence[str]) -> int:
    return order.index(label) if label in order else len(order)


def advise(
    evidence: AdviceEvidence,
    name: str,
    profile: UsageProfile,
    *,
    weights: Mapping[Axis, float] | None = None,
) -> Advice:
    """Figures of each filesystem, and all pairs on all axes in one request, so that its error rate holds for all."""
    criteria, rule = Criteria(), GUEST_TIME if evidence.guest_time else REAL_TIME
    figures = tuple(figures_of(one, profile, evidence) for one in evidence.filesystems)
    relations = (*_of_boots(figures, rule), *_of_cuts(figures, criteria))
    order = {axis: i for i, axis in enumerate(Axis)}
    relations = tuple(sorted(relations, key=lambda relation: order[relation.axis]))
    scores = tuple(sorted(_scores(figures, weights or {}), key=lambda score: score.value.value))
    return Advice(name, profile, evidence, figures, relations, rule, criteria, dict(weights or {}), scores)


def advice_of(loaded: LoadedRun) -> tuple[Advice, ...]:
    """The advice that a run can give alone: on our profiles of which at least two filesystems have every part of a day.

    Empty for a run of several kernels, storage devices or meters: the reader has to choose one.
    """
    measured = {m.workload.slug for m in loaded.measurements if m.valid}
    profiles = [profile_of(name) for name in profile_names()]
    enough = [(name, one) for name, one in profiles if {part.slug for part in parts_of(one)} <= measured]
    if not enough:
        return ()
    try:
        evidence = evidence_of([loaded])
    except ConfigError:
        return ()
    told = [advise(evidence, name, one) for name, one in enough]
    return tuple(one for one in told if sum(bool(figures.shares) for figures in one.figures) >= _LEAST_IN_A_RUN)


def on_axis(one: FilesystemFigures, axis: Axis) -> Estimate | None:
    """A filesystem's figure: J a day, files lost a year, s, MiB written a day, s."""
    return {
        Axis.ENERGY: one.energy_j,
        Axis.LOSS: one.losses.per_year if one.losses else None,
        Axis.WAIT: one.wait_s,
        Axis.WEAR: one.written_mib,
        Axis.MOUNT: one.mount_s,
    }[axis]


def _compared(one: FilesystemFigures, axis: Axis) -> Estimate | None:
    """The figure in a unit that all filesystems share, whatever they are on."""
    return one.worn if axis is Axis.WEAR else on_axis(one, axis)


def _value(one: FilesystemFigures, axis: Axis) -> float:
    found = _compared(one, axis)
    assert found is not None
    return found.value


def _pairs(figures: Sequence[FilesystemFigures], axis: Axis) -> list[tuple[FilesystemFigures, FilesystemFigures]]:
    return list(combinations([each for each in figures if _compared(each, axis) is not None], 2))


def _of_boots(figures: Sequence[FilesystemFigures], rule: SuperiorityRule) -> list[Relation]:
    """Relations on the axes that boots pair. Each has a third of the rate: they share it."""
    share = replace(rule, false_discoveries=rule.false_discoveries / len(PAIRED))
    relations: list[Relation] = []
    for axis in PAIRED:
        pairs = _pairs(figures, axis)
        judged = statements([[_differences(one, other, axis) for one, other in pairs]], share)[0] if pairs else []
        relations += [_of_statement(axis, *pair, one) for pair, one in zip(pairs, judged, strict=True)]
    return relations


def _boots(one: FilesystemFigures, axis: Axis) -> Mapping[Boot, float]:
    return {Axis.ENERGY: one.energy_of_boots, Axis.WAIT: one.wait_of_boots, Axis.WEAR: one.worn_of_boots}[axis]


def _differences(one: FilesystemFigures, other: FilesystemFigures, axis: Axis) -> Floats:
    """log(other) - log(one) of each boot, above 0 where one is less; shape (boots,).

    Filesystems that were measured in different runs have no boot in common: their first boots are a pair, and so on.
    """
    ours, theirs = _boots(one, axis), _boots(other, axis)
    common = [boot for boot in ours if boot in theirs]
    pairs = [(ours[boot], theirs[boot]) for boot in common] or list(zip(ours.values(), theirs.values(), strict=False))
    usable = [math.log(b) - math.log(a) for a, b in pairs if a > 0 and b > 0]
    return np.array(usable, dtype=np.float64)


def _of_statement(
    axis: Axis, one: FilesystemFigures, other: FilesystemFigures, statement: SuperiorityStatement
) -> Relation:
    less = {Outcome.IMPROVED: one.label, Outcome.REGRESSED: other.label}.get(statement.outcome)
    same = statement.outcome is Outcome.UNCHANGED
    return Relation(axis, one.label, other.label, less, same, statement.ratio, statement.interval, statement.more_boots)


def _of_cuts(figures: Sequence[FilesystemFigures], criteria: Criteria) -> list[Relation]:
    """Relations in losses and in mounts after a cut. Losses are counted from 1: the rank test sees only their order."""
    comparisons = [
        Comparison((axis, one, other), Metric.DURATION, _cuts(one, axis), _cuts(other, axis))
        for axis in (Axis.LOSS, Axis.MOUNT)
        for one, other in _pairs(figures, axis)
    ]
    relations: list[Relation] = []
    for verdict in compare(comparisons, criteria):
        axis, one, other = verdict.subject
        more = max(verdict.more_baseline or 0, verdict.more_candidate or 0) or None
        if axis is Axis.MOUNT:
            less = {Outcome.IMPROVED: other.label, Outcome.REGRESSED: one.label}.get(verdict.outcome)
            same = verdict.outcome is Outcome.UNCHANGED
            ratio = verdict.ratio
            measured = (ratio.value, ratio.interval) if ratio else (None, None)
            relations.append(Relation(axis, one.label, other.label, less, same, *measured, more))
            continue
        # Most cuts lose nothing, so that medians of losses tell nothing: the rank test at the same levels decides.
        p, q = verdict.p, verdict.q
        certain = p is not None and q is not None and p <= criteria.alpha and q <= criteria.false_discoveries
        fewer = one if _value(one, axis) < _value(other, axis) else other
        relations.append(Relation(axis, one.label, other.label, fewer.label if certain else None, False, more=more))
    return relations


def _cuts(one: FilesystemFigures, axis: Axis) -> tuple[float, ...]:
    if axis is Axis.MOUNT:
        return one.mount_of_cuts
    return tuple(1.0 + lost for lost in one.losses.per_cut) if one.losses else ()


def _scores(figures: Sequence[FilesystemFigures], weights: Mapping[Axis, float]) -> list[Score]:
    """Scores of the filesystems that have the figure of every weighted axis."""
    total = sum(weights.values())
    if not total:
        return []
    complete = [one for one in figures if all(_compared(one, axis) is not None for axis in weights)]
    largest = {axis: max((_value(one, axis) for one in complete), default=0.0) for axis in weights}
    scores: list[Score] = []
    for one in complete:
        parts = [(weight / total, _compared(one, axis), largest[axis]) for axis, weight in weights.items()]
        known = [(weight / most, estimate) for weight, estimate, most in parts if estimate is not None and most]
        value, low, high = (
            sum(weight * getattr(estimate, bound) for weight, estimate in known) for bound in ("value", "low", "high")
        )
        scores.append(Score(one.label, Estimate(value, low, high, min((e.n for _, e in known), default=0))))
    return scores


def parse_weights(text: str) -> dict[Axis, float]:
    """Weights from `energy=2,loss=1`. Raises ConfigError."""
    weights: dict[Axis, float] = {}
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        if name not in list(Axis):
            raise ConfigError.unknown("weight", name, list(Axis))
        try:
            weight = float(number) if equals else float("nan")
        except ValueError:
            weight = float("nan")
        if not 0 <= weight < float("inf"):
            raise ConfigError(f"--weights {part.strip()}: not a number from 0 on", hint="for example energy=2,loss=1")
        if Axis(name) in weights:
            raise ConfigError(f"--weights names {name} twice", hint="for example energy=2,loss=1")
        weights[Axis(name)] = weight
    if not sum(weights.values()):
        raise ConfigError("--weights: all weights are zero", hint="for example energy=2,loss=1")
    return {axis: weight for axis, weight in weights.items() if weight}
