"""Judges which filesystems can be told apart on each axis, with the method of `fsjoule compare`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric
from fsjoule.statistics.comparison import Comparison, Verdict, compare
from fsjoule.statistics.criteria import Criteria
from fsjoule.statistics.estimate import Estimate
from fsjoule.statistics.outcome import Outcome
from fsjoule.suites.profile import UsageProfile
from fsjoule.verdicts.advice.evidence import Evidence
from fsjoule.verdicts.advice.figures import Figures, figures_of


class Axis(StrEnum):
    """What is weighed; less is better on all of them."""

    ENERGY = "energy"
    LOSS = "loss"
    WAIT = "wait"
    WEAR = "wear"
    MOUNT = "mount"


# Axes without which a filesystem would not be advised; a mount after a cut is shown, and decides nothing.
DECISIVE: Final = (Axis.ENERGY, Axis.LOSS, Axis.WAIT, Axis.WEAR)


@dataclass(frozen=True, slots=True)
class Relation:
    """Two filesystems on one axis: `less` is the label of the one that was told to be less, None if neither was.

    `same`: any difference is smaller than the smallest that matters. `basis` has the medians' ratio, other over one.
    """

    axis: Axis
    one: str
    other: str
    less: str | None
    same: bool
    basis: Verdict[tuple[Axis, str, str]]


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
    evidence: Evidence
    figures: tuple[Figures, ...]
    relations: tuple[Relation, ...]
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
        """The filesystems that were told to be less than this one."""
        return tuple(self._less.get((axis, label), ()))

    def first(self, axis: Axis) -> tuple[Figures, ...]:
        """The filesystems with this figure that none was told to be less than, the lowest first."""
        known = [one for one in self.figures if on_axis(one, axis) is not None]
        free = [one for one in known if not self.less(axis, one.label)]
        return tuple(sorted(free, key=lambda one: _value(one, axis)))

    @property
    def sensible(self) -> tuple[Figures, ...]:
        """The filesystems that no other is told to beat on an axis without being told to lose to it on another."""
        return tuple(one for one in self.figures if not any(self._beats(other, one) for other in self.figures))

    def _beats(self, one: Figures, other: Figures) -> bool:
        wins = any(one.label in self.less(axis, other.label) for axis in DECISIVE)
        loses = any(other.label in self.less(axis, one.label) for axis in DECISIVE)
        return wins and not loses


def advise(
    evidence: Evidence,
    name: str,
    profile: UsageProfile,
    *,
    weights: Mapping[Axis, float] | None = None,
    criteria: Criteria | None = None,
) -> Advice:
    """Figures of each filesystem, and all pairs on all axes in one request, so that its error rate holds for all."""
    wanted = criteria or Criteria()
    figures = tuple(figures_of(one, profile, evidence) for one in evidence.filesystems)
    relations = tuple(_relations(figures, wanted))
    scores = tuple(sorted(_scores(figures, weights or {}), key=lambda score: score.value.value))
    return Advice(name, profile, evidence, figures, relations, wanted, dict(weights or {}), scores)


def on_axis(one: Figures, axis: Axis) -> Estimate | None:
    """A filesystem's figure: J a day, files lost a year, s, MiB written a day, s."""
    return {
        Axis.ENERGY: one.energy_j,
        Axis.LOSS: one.losses.per_year if one.losses else None,
        Axis.WAIT: one.wait_s,
        Axis.WEAR: one.written_mib,
        Axis.MOUNT: one.mount_s,
    }[axis]


def _value(one: Figures, axis: Axis) -> float:
    found = on_axis(one, axis)
    assert found is not None
    return found.value


# Metrics of which less is better, and the figures per boot. Losses are counted from 1, because the comparison of ratios
# takes no zeros; their order, all that the rank test sees, stays.
_COMPARED: Final = {
    Axis.ENERGY: Metric.OPERATION_ENERGY,
    Axis.LOSS: Metric.DURATION,
    Axis.WAIT: Metric.DURATION,
    Axis.WEAR: Metric.WRITE_AMPLIFICATION,
    Axis.MOUNT: Metric.DURATION,
}


def _of_boots(one: Figures, axis: Axis) -> tuple[float, ...]:
    return {
        Axis.ENERGY: one.energy_of_boots,
        Axis.LOSS: tuple(1.0 + lost for lost in one.losses.per_cut) if one.losses else (),
        Axis.WAIT: one.wait_of_boots,
        Axis.WEAR: one.written_of_boots,
        Axis.MOUNT: one.mount_of_boots,
    }[axis]


def _relations(figures: Sequence[Figures], criteria: Criteria) -> list[Relation]:
    comparisons = [
        Comparison((axis, one.label, other.label), _COMPARED[axis], _of_boots(one, axis), _of_boots(other, axis))
        for axis in Axis
        for one, other in combinations([each for each in figures if on_axis(each, axis) is not None], 2)
    ]
    means = {(axis, one.label): on_axis(one, axis) for axis in Axis for one in figures}
    return [_relation(verdict, means, criteria) for verdict in compare(comparisons, criteria)]


def _relation(
    verdict: Verdict[tuple[Axis, str, str]],
    means: Mapping[tuple[Axis, str], Estimate | None],
    criteria: Criteria,
) -> Relation:
    axis, one, other = verdict.subject
    if axis is not Axis.LOSS:
        less = {Outcome.IMPROVED: other, Outcome.REGRESSED: one}.get(verdict.outcome)
        return Relation(axis, one, other, less, verdict.outcome is Outcome.UNCHANGED, verdict)
    # Most cuts lose nothing, so that medians of losses tell nothing: the same rank test, at the same levels, decides.
    p, q = verdict.p, verdict.q
    certain = p is not None and q is not None and p <= criteria.alpha and q <= criteria.false_discoveries
    ours, theirs = means[axis, one], means[axis, other]
    assert ours is not None
    assert theirs is not None
    less = (one if ours.value < theirs.value else other) if certain else None
    return Relation(axis, one, other, less, same=False, basis=verdict)


def _scores(figures: Sequence[Figures], weights: Mapping[Axis, float]) -> list[Score]:
    """Scores of the filesystems that have the figure of every weighted axis."""
    total = sum(weights.values())
    if not total:
        return []
    complete = [one for one in figures if all(on_axis(one, axis) is not None for axis in weights)]
    largest = {axis: max((_value(one, axis) for one in complete), default=0.0) for axis in weights}
    found: list[Score] = []
    for one in complete:
        parts = [(weight / total, on_axis(one, axis), largest[axis]) for axis, weight in weights.items()]
        known = [(weight / most, estimate) for weight, estimate, most in parts if estimate is not None and most]
        value, low, high = (
            sum(weight * getattr(estimate, bound) for weight, estimate in known) for bound in ("value", "low", "high")
        )
        found.append(Score(one.label, Estimate(value, low, high, min((e.n for _, e in known), default=0))))
    return found


def parse_weights(text: str) -> dict[Axis, float]:
    """Weights from `energy=2,loss=1`. Raises ConfigError."""
    found: dict[Axis, float] = {}
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
        if Axis(name) in found:
            raise ConfigError(f"--weights names {name} twice", hint="for example energy=2,loss=1")
        found[Axis(name)] = weight
    if not sum(found.values()):
        raise ConfigError("--weights: all weights are zero", hint="for example energy=2,loss=1")
    return {axis: weight for axis, weight in found.items() if weight}
