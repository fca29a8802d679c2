"""Rules that say whether a candidate is slower than its baseline: ours, and three others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
from otava.analysis import compute_change_points
from scipy import stats

from fsjoule.model.metrics import Metric
from fsjoule.statistics.comparison import Comparison, compare
from fsjoule.statistics.evidence import Evidence, Hypotheses, KnownNoise, evidence
from fsjoule.statistics.gate import ErrorRates, smallest_loss
from fsjoule.statistics.outcome import Outcome

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Stops = tuple[Flags, Flags, npt.NDArray[np.int64]]

# So many trials are followed at once; more would not fit into the processor's cache.
_CHUNK = 250
_EARLY_PAIRS = 8


@dataclass(frozen=True, slots=True)
class Calls:
    """What a rule says of each trial, shape (trials,): regressed, not regressed, and how many boots it took.

    A rule that knows no third answer says `not_regressed` where it does not say `regressed`.
    """

    regressed: Flags
    not_regressed: Flags
    boots: npt.NDArray[np.int64]


class Rule(Protocol):
    """Judges trials by the logarithms of their boots' throughput, shape (trials, pairs) each."""

    def __call__(self, baseline: Floats, candidate: Floats) -> Calls: ...


def gate(rates: ErrorRates, known: KnownNoise | None = None, *, seeded: bool = False) -> Rule:
    """The sequential test of `fsjoule gate`, many trials at once; the stepper asks the same function."""
    hypotheses = Hypotheses.about(smallest_loss(rates.smallest_effect, more_is_better=True))
    asked = partial(evidence, hypotheses=hypotheses, known=known, seeded=seeded)

    def stops(baseline: Floats, candidate: Floats) -> list[Stops]:
        parts = range(0, len(baseline), _CHUNK)
        return [_stops(baseline[i : i + _CHUNK], candidate[i : i + _CHUNK], rates, asked) for i in parts]

    def judge(baseline: Floats, candidate: Floats) -> Calls:
        early = min(_EARLY_PAIRS, rates.budget_pairs)
        calls = [np.concatenate(kind) for kind in zip(*stops(baseline[:, :early], candidate[:, :early]), strict=True)]
        late = ~(calls[0] | calls[1])  # most trials are over by then; only the others are followed to the end
        if late.any() and early < rates.budget_pairs:
            budget = slice(0, rates.budget_pairs)
            rest = zip(*stops(baseline[late, budget], candidate[late, budget]), strict=True)
            for kind, parts in zip(calls, rest, strict=True):
                kind[late] = np.concatenate(parts)
        return Calls(*calls)

    return judge


def _stops(
    baseline: Floats, candidate: Floats, rates: ErrorRates, asked: Callable[[Floats, Floats], Evidence]
) -> Stops:
    found = asked(baseline, candidate)
    pairs = baseline.shape[1]
    regressed = _first(found.regressed >= -math.log(rates.alpha), rates.least_pairs)
    not_regressed = _first(found.not_regressed >= -math.log(rates.beta), rates.least_pairs)
    used = np.minimum(np.minimum(regressed, not_regressed) + 1, pairs)
    return regressed < not_regressed, not_regressed < regressed, 2 * used


def _first(reached: Flags, least: int) -> npt.NDArray[np.int64]:
    """The first pair from `least` on at which each trial has reached it; beyond the last if it has not."""
    allowed = reached & (np.arange(reached.shape[1]) >= least - 1)
    return np.where(allowed.any(axis=1), allowed.argmax(axis=1), reached.shape[1] + 1)


def verdict(each: int) -> Rule:
    """`fsjoule compare` with that many boots a side; anything but improved or unchanged counts as not decided."""

    def judge(baseline: Floats, candidate: Floats) -> Calls:
        outcomes = [
            compare([Comparison(None, Metric.THROUGHPUT, tuple(np.exp(a).tolist()), tuple(np.exp(b).tolist()))])[
                0
            ].outcome
            for a, b in zip(baseline[:, :each], candidate[:, :each], strict=True)
        ]
        good = (Outcome.IMPROVED, Outcome.UNCHANGED)
        return Calls(
            np.array([outcome is Outcome.REGRESSED for outcome in outcomes]),
            np.array([outcome in good for outcome in outcomes]),
            np.full(len(outcomes), 2 * each),
        )

    return judge


def threshold(each: int, loss: float = 0.05) -> Rule:
    """The candidate's mean is lower by more than that."""

    def judge(baseline: Floats, candidate: Floats) -> Calls:
        before, after = (np.exp(side[:, :each]).mean(axis=1) for side in (baseline, candidate))
        return _two_way(after < (1 - loss) * before, each)

    return judge


def welch(each: int, alpha: float = 0.01) -> Rule:
    """Welch's t test, two-sided, and the candidate's mean is the lower one."""

    def judge(baseline: Floats, candidate: Floats) -> Calls:
        before, after = (np.exp(side[:, :each]) for side in (baseline, candidate))
        p = stats.ttest_ind(before, after, axis=1, equal_var=False).pvalue
        return _two_way((p <= alpha) & (after.mean(axis=1) < before.mean(axis=1)), each)

    return judge


def otava(each: int) -> Rule:
    """Apache Otava with its own settings, given all of the baseline and then all of the candidate: any fall counts."""

    def judge(baseline: Floats, candidate: Floats) -> Calls:
        series = np.exp(np.concatenate([baseline[:, :each], candidate[:, :each]], axis=1))
        return _two_way(np.array([_falls(values.tolist()) for values in series]), each)

    return judge


def _falls(values: list[float]) -> bool:
    changes, _ = compute_change_points(values)
    return any(change.stats.mean_2 < change.stats.mean_1 for change in changes)


def _two_way(regressed: Flags, each: int) -> Calls:
    return Calls(regressed, ~regressed, np.full(len(regressed), 2 * each))
