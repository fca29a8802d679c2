"""The sequential test of `fsjoule gate`, asked after every pair of boots: is the candidate worse than the baseline?"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from fsjoule.model.metrics import Figure, Metric
from fsjoule.statistics.changepoints import Nomination
from fsjoule.statistics.evidence import Floats, Hypotheses, KnownNoise, effect_bounds, evidence
from fsjoule.statistics.figures import complaint
from fsjoule.statistics.outcome import Confirmed, Outcome
from fsjoule.statistics.policy import Policy
from fsjoule.statistics.ratios import CONFIDENCE, Interval

K = TypeVar("K", bound=Hashable)

# A boot this many standard deviations worse than its side's median counts as a stall.
_STALL_SIGMAS: Final = 5.0
# So many tests beside one have a noise to tell.
_LEAST_ALIKE: Final = 3


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """A sequential test's error rates and budget.

    `alpha` bounds the chance of `regressed` without a loss, `beta` the chance of `not regressed` with a loss of at
    least `smallest_effect` (a fraction of the baseline). `budget_pairs` counts every pair, usable or not. There is no
    decision before `least_pairs`.
    """

    smallest_effect: float
    alpha: float = 0.01
    beta: float = 0.01
    budget_pairs: int = 20
    least_pairs: int = 3


@dataclass(frozen=True, slots=True)
class SequentialState:
    """The state of a sequential test.

    `more` is False once it is decided or its budget is used up. `ratio` is the median over pairs of candidate over
    baseline, None without a usable pair; because the test stops when it has seen enough, it overstates effects a
    little. `towards_*` is the evidence as a fraction of a decision's (of logarithms; 1 decides). `relative_noise` is
    the estimated standard deviation of a boot. `stalls_*` count stalled boots, which the test ignores but a reader
    should not. `unusable` names figures that were not used. `hidden_by` is set where the figures decide, and the share
    by which their clock may have rounded them leaves it open: more pairs would not help.
    """

    decision: Outcome
    more: bool
    pairs: int
    ratio: float | None = None
    towards_regressed: float = 0.0
    towards_not_regressed: float = 0.0
    relative_noise: float | None = None
    stalls_baseline: int = 0
    stalls_candidate: int = 0
    unusable: tuple[str, ...] = ()
    hidden_by: float | None = None


class SequentialTest:
    """Takes interleaved pairs of boots, not chosen by their figures, and says whether it needs more.

    With `seeded` the boots of a pair share their seed, on a board in guest time.
    """

    def __init__(
        self, rates: ErrorRates, *, more_is_better: bool, known: KnownNoise | None = None, seeded: bool = False
    ) -> None:
        self._rates = rates
        self._seeded = seeded
        self._sign = 1.0 if more_is_better else -1.0
        self._known_noise = known
        self._hypotheses = Hypotheses.about(smallest_loss(rates.smallest_effect, more_is_better=more_is_better))
        self._baseline: list[float] = []
        self._candidate: list[float] = []
        self._unusable: list[str] = []
        self._offered = 0
        self._step = 0.0
        self._state = SequentialState(Outcome.UNDECIDED, rates.budget_pairs > 0, 0)

    @property
    def state(self) -> SequentialState:
        return self._state

    @property
    def differences(self) -> Floats:
        """The logarithms of candidate over baseline, of the pairs so far."""
        return np.array(self._candidate) - np.array(self._baseline)

    def add(
        self, baseline: Figure, candidate: Figure, step: float = 0.0, known: KnownNoise | None = None
    ) -> SequentialState:
        """Take one more pair; returns the new state. A clock may have rounded either figure by the share `step`.

        A pair with a figure that is missing, not finite or not above zero is named and not used. Nothing changes after
        a decision or beyond the budget. `known` is what is known of the noise by now, if it is more than before.
        """
        if not self._state.more:
            return self._state
        self._known_noise = known or self._known_noise
        self._offered += 1
        self._step = max(self._step, step)
        wrong = [
            f"{side} {self._offered}: {why}"
            for side, figure in (("baseline", baseline), ("candidate", candidate))
            if (why := complaint(figure))
        ]
        self._unusable += wrong
        if baseline is not None and candidate is not None and not wrong:
            self._baseline.append(self._sign * math.log(baseline))
            self._candidate.append(self._sign * math.log(candidate))
        self._state = self._judge()
        return self._state

    def interval(self, confidence: float = CONFIDENCE) -> Interval | None:
        """Bounds of candidate over baseline that hold whenever one stops; None without a usable pair."""
        if not self._baseline:
            return None
        baseline, candidate = np.array(self._baseline), np.array(self._candidate)
        bounds = effect_bounds(
            *(baseline, candidate, self._hypotheses, self._known_noise), confidence=confidence, seeded=self._seeded
        )
        low, high = sorted(math.exp(self._sign * bound) for bound in bounds)
        return Interval(low, high)

    def _judge(self) -> SequentialState:
        used = len(self._baseline)
        open_budget = self._offered < self._rates.budget_pairs
        if not used:
            return SequentialState(Outcome.UNDECIDED, open_budget, 0, unusable=tuple(self._unusable))
        baseline, candidate = np.array(self._baseline), np.array(self._candidate)
        regressed, not_regressed, noise = self._towards(baseline, candidate)
        decision = self._decision(used, regressed, not_regressed)
        # A step of less than half of what matters leaves a figure on the side of no loss, or on that of one.
        hidden = False
        if decision is not Outcome.UNDECIDED and 2 * self._step > self._rates.smallest_effect:
            lost = decision is Outcome.REGRESSED
            step = math.log1p(self._step) * (1 if lost else -1)
            if self._decision(used, *self._towards(baseline, candidate + step)[:2]) is not decision:
                decision = Outcome.UNDECIDED
                # A change that is as large without the step only needs more pairs.
                change = float(np.median(candidate - baseline)) + step
                hidden = change > self._hypotheses.losses.max() if lost else change < 0
        return SequentialState(
            decision=decision,
            more=decision is Outcome.UNDECIDED and open_budget and not hidden,
            pairs=used,
            ratio=math.exp(self._sign * float(np.median(candidate - baseline))),
            towards_regressed=max(0.0, regressed),
            towards_not_regressed=max(0.0, not_regressed),
            relative_noise=noise,
            stalls_baseline=_stalls(baseline, noise),
            stalls_candidate=_stalls(candidate, noise),
            unusable=tuple(self._unusable),
            hidden_by=self._step if hidden else None,
        )

    def _towards(self, baseline: Floats, candidate: Floats) -> tuple[float, float, float]:
        known, seeded = self._known_noise, self._seeded
        found = evidence(baseline, candidate, self._hypotheses, known, seeded=seeded, last_only=True)
        regressed = float(found.regressed[-1]) / -math.log(self._rates.alpha)
        return regressed, float(found.not_regressed[-1]) / -math.log(self._rates.beta), float(found.relative_noise[-1])

    def _decision(self, used: int, regressed: float, not_regressed: float) -> Outcome:
        if used < self._rates.least_pairs or max(regressed, not_regressed) < 1:
            return Outcome.UNDECIDED
        return Outcome.REGRESSED if regressed >= 1 else Outcome.NOT_REGRESSED


@dataclass(frozen=True, slots=True)
class GateState(Generic[K]):
    """The state of a gate: the overall `decision`, each test's state, and the tests that need `more` pairs."""

    decision: Outcome
    tests: Mapping[tuple[K, Metric], SequentialState]
    more: tuple[tuple[K, Metric], ...]


class Gate(Generic[K]):
    """All series and metrics of a gate, tested side by side.

    The policy's alpha is split over the tests (Bonferroni): it bounds the chance that the whole gate calls a regression
    without a loss. One regression decides; `not regressed` needs all tests.

    Series have about the same noise in the metrics `alike`. There each test knows the spread of the others' earlier
    pairs: four pairs of its own cannot tell a change from a noise of a fifth of it.
    """

    def __init__(
        self,
        policy: Policy,
        tests: Sequence[tuple[K, Metric]],
        known_noise: Mapping[tuple[K, Metric], KnownNoise] | None = None,
        *,
        seeded: bool = False,
        alike: Sequence[Metric] = (),
    ) -> None:
        if not tests:
            raise ValueError("a gate without a single test would let everything pass")
        self._alike = alike
        given = known_noise or {}
        self._tests = {
            (series, metric): SequentialTest(
                ErrorRates(
                    smallest_effect=policy.effect_of(metric),
                    alpha=policy.alpha / len(set(tests)),
                    beta=policy.beta,
                    budget_pairs=policy.budget_pairs,
                    least_pairs=policy.least_pairs,
                ),
                more_is_better=metric.more_is_better,
                known=given.get((series, metric)),
                seeded=seeded,
            )
            for series, metric in tests
        }

    def add(
        self,
        pairs: Mapping[tuple[K, Metric], tuple[Figure, Figure]],
        steps: Mapping[tuple[K, Metric], float] | None = None,
    ) -> GateState[K]:
        """Take one pair of boots, (baseline, candidate) per test; an open test without a pair counts it as missing.

        `steps` are the shares by which a clock may have rounded the figures of a test.
        """
        open_tests = self.state.more
        known = {key: self._noise_beside(key) for key in open_tests}
        for key in open_tests:
            self._tests[key].add(*pairs.get(key, (None, None)), (steps or {}).get(key, 0.0), known[key])
        return self.state

    def _noise_beside(self, key: tuple[K, Metric]) -> KnownNoise | None:
        """The noise of a boot in the other tests of the metric; None if too few have shown it."""
        if key[1] not in self._alike:
            return None
        others = [test.differences for other, test in self._tests.items() if other != key and other[1] is key[1]]
        spread = [each for each in others if len(each) > 1]
        if len(spread) < _LEAST_ALIKE:
            return None
        degrees = sum(len(each) - 1 for each in spread)
        squares = sum(float(np.square(each - each.mean()).sum()) for each in spread)
        return KnownNoise(math.sqrt(squares / degrees / 2), degrees)

    def interval(self, series: K, metric: Metric) -> Interval | None:
        return self._tests[series, metric].interval()

    @property
    def state(self) -> GateState[K]:
        states = {key: test.state for key, test in self._tests.items()}
        decisions = {state.decision for state in states.values()}
        if Outcome.REGRESSED in decisions:
            return GateState(Outcome.REGRESSED, states, ())
        more = tuple(key for key, state in states.items() if state.more)
        return GateState(
            Outcome.NOT_REGRESSED if decisions == {Outcome.NOT_REGRESSED} else Outcome.UNDECIDED, states, more
        )


def smallest_loss(effect: float, *, more_is_better: bool) -> float:
    """A loss (5 % less throughput, 5 % more energy) as a positive difference of logarithms."""
    return -math.log1p(-effect) if more_is_better else math.log1p(effect)


def _stalls(side: Floats, relative_noise: float) -> int:
    return int(np.sum(side < np.median(side) - _STALL_SIGMAS * relative_noise))


def confirming_test(nomination: Nomination, rates: ErrorRates, *, seeded: bool = False) -> SequentialTest:
    """The sequential test for a nomination, in the direction of its change.

    It takes pairs of fresh boots of the points `before` and `after`, which share seeds with `seeded`. `regressed` means
    a change in this direction, better or worse.
    """
    return SequentialTest(rates, more_is_better=nomination.ratio < 1, seeded=seeded)


def outcome_of(state: SequentialState) -> Confirmed:
    """A confirming test's present answer about its nomination."""
    return {
        Outcome.REGRESSED: Confirmed.CONFIRMED,
        Outcome.NOT_REGRESSED: Confirmed.REFUTED,
        Outcome.UNDECIDED: Confirmed.UNDECIDED,
    }[state.decision]
