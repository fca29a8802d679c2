"""Whether one of two sides is better, or both are equal, from few boots: an e-value per statement, and e-BH over a run.

A statement is one figure of two sides. In each boot d = log(figure of A) - log(figure of B), with a sign so that larger
is better; what is particular to a boot cancels. Two or three boots that agree by chance look like no noise, so each
statement leans on the noise of the whole run: s^2 is the mean over the run's figures of the residual variance once the
means of sides and of boots are taken out, and it counts as much as four boots would.

    log L(t) = -(n + 4)/2 * log(4 s^2 + sum over boots of (d - t)^2 / 2)

    better  mean of L(t) over effects of 1 % to eight times as much  /  largest L(t) over t <= 0
    worse   the same with the sides exchanged
    equal   L(0)  /  largest L(t) over |t| >= 5 %

Each of the first two is an e-value: it may be looked at after each boot (Ville 1939; Ramdas, Gruenwald, Vovk, Shafer:
Game-theoretic statistics and safe anytime-valid inference, 2023). All of a run go through e-BH (Wang, Ramdas: False
discovery rate control with e-values, JRSS B 84, 2022). tests/statistics/superiority.py simulates the rates, which
docs/statistics.md lists: the noise is not normal in a lab, and s^2 is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import CONFIDENCE, Floats, Interval

# The run's own noise counts as much as that many boots of a statement.
_PRIOR_BOOTS: Final = 4.0
_STEP: Final = 1.15
_LARGEST: Final = math.log(8)
# A forecast of more boots than this is no help to anybody.
_FARTHEST: Final = 1000


@dataclass(frozen=True, slots=True)
class SuperiorityRule:
    """Effects and noise are differences of logarithms.

    `false_discoveries` bounds the share of false statements among those of a run that call a side better;
    `smallest_effect` is the smallest one looked for, `equal_within` the difference that "equal" excludes, `least_noise`
    the noise that a boot has at least. Nothing is decided before `least_boots`; `most_boots` is where a run that
    repeats by itself ends.
    """

    least_noise: float
    least_boots: int
    most_boots: int = 12
    false_discoveries: float = 0.01
    smallest_effect: float = 0.01
    equal_within: float = 0.05
    equal_evidence: float = 100.0


REAL_TIME: Final = SuperiorityRule(least_noise=0.005, least_boots=3)
# Most figures do not move at all there, but a single boot can jump by 2 % (docs/deterministic-figures.md).
GUEST_TIME: Final = SuperiorityRule(least_noise=0.01, least_boots=2)
# Two kernels whose boots take turns, on any board: each has its own boot, whose level all its figures share.
KERNELS: Final = SuperiorityRule(least_noise=0.01, least_boots=3)


@dataclass(frozen=True, slots=True)
class SuperiorityStatement:
    """What is known of one figure of two sides after `boots` boots of both.

    `outcome` is improved or regressed (the first side is better or worse), unchanged (equal), or undecided. `ratio` is
    the geometric mean of first over second, better above 1; None without a boot. `interval` is its 95 % interval,
    None after one boot. `better`, `worse` and `equal` are the logarithms of the evidence. `more_boots` is a forecast
    of how many further boots decide it: 0 if decided, None if more than a thousand.
    """

    outcome: Outcome
    boots: int
    ratio: float | None = None
    interval: Interval | None = None
    better: float = 0.0
    worse: float = 0.0
    equal: float = 0.0
    more_boots: int | None = None

    @property
    def decided(self) -> bool:
        return self.outcome is not Outcome.UNDECIDED

    def change(self, *, more_is_better: bool) -> tuple[float | None, Interval | None]:
        """`ratio` and `interval` as the first side's figure over the second's, where less may be better."""
        if more_is_better or self.ratio is None:
            return self.ratio, self.interval
        turned = None if self.interval is None else Interval(1 / self.interval.high, 1 / self.interval.low)
        return 1 / self.ratio, turned


def residual_noise(figures: Sequence[Sequence[Floats]]) -> float | None:
    """The relative standard deviation of a boot, from differences of one run; None without two boots of anything.

    `figures` has the differences of all pairs of sides, figure by figure. The mean over pairs of half their variance
    is the residual variance of the two-way table of sides and boots.
    """
    variances = [
        float(np.mean(spreads))
        for pairs in figures
        if (spreads := [np.var(differences, ddof=1) / 2 for differences in pairs if len(differences) > 1])
    ]
    return math.sqrt(float(np.mean(variances))) if variances else None


def statements(figures: Sequence[Sequence[Floats]], rule: SuperiorityRule) -> list[list[SuperiorityStatement]]:
    """The statements of one run, in the order of `figures`: for each figure, the differences of each pair of sides.

    A difference is a boot's log(first) - log(second), better above 0; shape (boots,). A pair may have no boot.
    """
    noise = max(residual_noise(figures) or 0.0, rule.least_noise)
    every = [_Evidence(differences, noise, rule) for pairs in figures for differences in pairs]
    e_values = np.array([[each.better, each.worse] for each in every]).reshape(-1)
    rejected = [(bool(better), bool(worse)) for better, worse in e_bh(e_values, rule.false_discoveries).reshape(-1, 2)]
    # One more statement than now: a forecast for those that are open.
    tests = max(e_values.size, 1)
    needed = math.log(tests / (rule.false_discoveries * min(sum(map(sum, rejected)) + 1, tests)))
    judged = iter([each.statement(*two, needed) for each, two in zip(every, rejected, strict=True)])
    return [[next(judged) for _ in pairs] for pairs in figures]


def e_bh(log_e_values: Floats, rate: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which hypotheses e-BH rejects at this rate of false discoveries: the k largest, e >= n / (rate k); shape (n,)."""
    count = len(log_e_values)
    order = np.argsort(-log_e_values, kind="stable")
    enough = log_e_values[order] >= math.log(count or 1) - math.log(rate) - np.log(np.arange(1, count + 1))
    rejected = np.zeros(count, dtype=np.bool_)
    if enough.any():
        rejected[order[: np.flatnonzero(enough)[-1] + 1]] = True
    return rejected


def evidence(
    boots: Floats, mean: Floats, squares: Floats, noise: Floats | float, rule: SuperiorityRule
) -> tuple[Floats, Floats, Floats]:
    """The logarithms of the evidence for better, worse and equal; all arrays broadcast, shape (...,).

    `mean` is that of the differences of so many boots, `squares` the sum of their squares about it; both are 0 without
    a boot. `noise` is the run's.
    """
    prior = _PRIOR_BOOTS * np.square(noise)
    grid = _effects(rule.smallest_effect).reshape(-1, *[1] * np.ndim(mean))

    def likelihood(effects: Floats | float) -> Floats:
        about = prior + (squares + boots * np.square(mean - effects)) / 2
        return -(boots + _PRIOR_BOOTS) / 2 * np.log(about)

    def mean_likelihood(sign: float) -> Floats:
        each = likelihood(sign * grid)
        largest = each.max(axis=0)
        return largest + np.log(np.exp(each - largest).mean(axis=0))

    better = mean_likelihood(1.0) - likelihood(np.minimum(mean, 0.0))
    worse = mean_likelihood(-1.0) - likelihood(np.maximum(mean, 0.0))
    bound = rule.equal_within
    apart = np.maximum(likelihood(np.maximum(mean, bound)), likelihood(np.minimum(mean, -bound)))
    return better, worse, likelihood(0.0) - apart


class _Evidence:
    """The evidence of one statement, and the forecast of the boots that it takes."""

    def __init__(self, differences: Floats, noise: float, rule: SuperiorityRule) -> None:
        self._rule = rule
        self._noise = noise
        self._boots = len(differences)
        self._mean = float(differences.mean()) if self._boots else 0.0
        self._squares = float(np.square(differences - self._mean).sum())
        self.better, self.worse, self.equal = self._after(self._boots)

    def _after(self, boots: int) -> tuple[float, float, float]:
        """The three logarithms after so many boots, if all had the mean and the spread of those there are."""
        squares = self._squares * boots / self._boots if self._boots else 0.0
        found = evidence(np.array(boots), np.array(self._mean), np.array(squares), self._noise, self._rule)
        better, worse, equal = map(float, found)
        return better, worse, equal

    def statement(self, better: bool, worse: bool, needed: float) -> SuperiorityStatement:
        if not self._boots:
            return SuperiorityStatement(Outcome.UNDECIDED, 0, more_boots=self._rule.least_boots)
        outcome = Outcome.UNDECIDED
        if self._boots >= self._rule.least_boots:
            outcome = self._outcome(better=better, worse=worse)
        return SuperiorityStatement(
            outcome=outcome,
            boots=self._boots,
            ratio=math.exp(self._mean),
            interval=self._interval(),
            better=self.better,
            worse=self.worse,
            equal=self.equal,
            more_boots=0 if outcome is not Outcome.UNDECIDED else self._more(needed),
        )

    def _outcome(self, *, better: bool, worse: bool) -> Outcome:
        """A certain difference is told as such, although it may also be below what counts as equal."""
        if better != worse:
            return Outcome.IMPROVED if better else Outcome.REGRESSED
        return Outcome.UNCHANGED if self.equal >= math.log(self._rule.equal_evidence) else Outcome.UNDECIDED

    def _more(self, needed: float) -> int | None:
        """Further boots until one of the three suffices; the first number that does, by bisection."""

        def enough(boots: int) -> bool:
            better, worse, equal = self._after(boots)
            return max(better, worse) >= needed or equal >= math.log(self._rule.equal_evidence)

        low, high = max(self._boots + 1, self._rule.least_boots), _FARTHEST
        if not enough(high):
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle + 1, high)
        return low - self._boots

    def _interval(self) -> Interval | None:
        """Moderated t: the variance of a difference is 2 s^2 with the weight of four boots, and its own."""
        if self._boots == 1:
            return None
        from scipy.special import stdtrit

        degrees = self._boots + _PRIOR_BOOTS - 1
        variance = (2 * _PRIOR_BOOTS * self._noise**2 + self._squares) / degrees / self._boots
        half = float(stdtrit(degrees, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)
        return Interval(math.exp(self._mean - half), math.exp(self._mean + half))


def _effects(smallest: float) -> Floats:
    """Effects from the smallest one, each 15 % larger than the last, to eight times as much."""
    return np.asarray(
        smallest * _STEP ** np.arange(math.ceil(math.log(_LARGEST / smallest, _STEP)) + 1), dtype=np.float64
    )
