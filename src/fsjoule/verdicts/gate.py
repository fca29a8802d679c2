"""A gate over pairs of boots: which figures it tests, when it has seen enough, and its answer. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Figure, Metric
from fsjoule.model.series import Point, Series
from fsjoule.statistics.evidence import KnownNoise
from fsjoule.statistics.figures import complaint
from fsjoule.statistics.gate import Gate, GateState, SequentialState
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.policy import Policy
from fsjoule.statistics.ratios import Interval
from fsjoule.store.finding import Finding, KernelWarning, Subject, kernel_warnings
from fsjoule.store.gate import GateVerdict, Tested

Test = tuple[Series, Metric]
Figures = Mapping[Test, tuple[Figure, Figure]]


@dataclass(frozen=True, slots=True)
class BootPair:
    """One boot of each side. `figures` are (baseline, candidate), None where one is missing or invalid.

    `series` is the number of planned series; a failed boot has fewer. `faults` are the lab's, `kernel_warnings` each
    side's. `steps` are the shares by which a clock may have rounded figures, where one did. `lacking` are the series
    that the board does not have, which are not tested.
    """

    number: int
    figures: Figures
    series: int
    faults: tuple[str, ...] = ()
    kernel_warnings: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    steps: Mapping[Test, float] = field(default_factory=dict[Test, float])
    lacking: frozenset[Series] = frozenset()


# Takes each complete pair; returns why no more are wanted, or None.
Enough = Callable[[BootPair], str | None]


# Metrics with about the same noise in all series, in guest time: 0.02 % (tests/statistics/instruction_gate.py).
_ALIKE: Final = (Metric.INSTRUCTIONS,)
_DECIDED: Final = "decided"
_USED_UP: Final = "the budget was used up"


@dataclass
class Judge:
    """Takes pairs until it says why it wants no more; then it has the answer.

    It tests all figures of the policy's metrics that the workloads have. Alpha is split over the tests, so all series
    must be known before the first decision. A test without any figure in the first pairs (a board without a meter has
    no energy) does not delay the gate, and never passes.
    """

    policy: Policy
    known_noise: Mapping[Test, KnownNoise] = field(default_factory=dict[Test, KnownNoise])
    guest_time: bool = False
    pairs: int = field(default=0, init=False)
    faults: list[str] = field(default_factory=list[str], init=False)
    _warned: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(
        default_factory=list[tuple[tuple[str, ...], tuple[str, ...]]], init=False
    )
    _gate: Gate[Series] | None = field(default=None, init=False)
    _waiting: list[BootPair] = field(default_factory=list[BootPair], init=False)
    _series: set[Series] = field(default_factory=set[Series], init=False)
    _seen: dict[Test, list[tuple[Figure, Figure]]] = field(
        default_factory=dict[Test, list[tuple[Figure, Figure]]], init=False
    )

    def see(self, pair: BootPair) -> str | None:
        """Take one more pair; returns why no more are wanted, or None."""
        self.pairs += 1
        self.faults += pair.faults
        self._warned.append(pair.kernel_warnings)
        for test, figures in pair.figures.items():
            self._series.add(test[0])
            if test[1] in self.policy.metrics and not (test[1].row.seldom and figures == (None, None)):
                self._seen.setdefault(test, []).append(figures)
        self._waiting.append(pair)
        if len(self._series) >= pair.series:
            self._start()
        if self._gate is None:
            return None
        state = self._gate.state
        if state.decision is not Outcome.UNDECIDED:
            return _DECIDED
        if not state.more:
            hidden = {test[1].value: one.hidden_by for test, one in state.tests.items() if one.hidden_by is not None}
            steps = ", ".join(f"{name} in steps of {100 * step:.2g} %" for name, step in hidden.items())
            return f"a clock measures {steps}: ask for twice that, or for longer jobs" if hidden else _USED_UP
        if self.pairs >= self.policy.least_pairs and not any(state.tests[test].pairs for test in state.more):
            metrics = dict.fromkeys(metric.value for _, metric in state.more)
            return f"no figures of {', '.join(metrics)} to decide the rest"
        return None

    def finish(self) -> None:
        """Tell it that there are no more pairs."""
        if self._series:
            self._start()

    @property
    def verdict(self) -> GateVerdict:
        decision = self._state.decision if self._gate else Outcome.UNDECIDED
        return {
            Outcome.REGRESSED: GateVerdict.REGRESSED,
            Outcome.NOT_REGRESSED: GateVerdict.PASSED,
            Outcome.UNDECIDED: GateVerdict.UNDECIDED,
        }[decision]

    @property
    def kernel_warnings(self) -> tuple[KernelWarning, ...]:
        baseline, candidate = zip(*self._warned, strict=True) if self._warned else ((), ())
        return kernel_warnings(enumerate(baseline), enumerate(candidate))

    @property
    def findings(self) -> tuple[Tested, ...]:
        """All tests, by series and metric. Empty before the first pair."""
        if self._gate is None:
            return ()
        tests = self._state.tests
        order = sorted(tests, key=lambda test: (_sort_key(test[0]), list(Metric).index(test[1])))
        return tuple(self._tested(self._gate, test) for test in order)

    def progress(self) -> str:
        """The state in one line: `pair 2: 5 of 26 decided; nearest to regressed: ext4 write-16k cpu, 40 %`."""
        if self._gate is None:
            return f"pair {self.pairs}: not every series has a figure yet"
        states = self._state.tests
        decided = sum(state.decision is not Outcome.UNDECIDED for state in states.values())
        worst = max(states, key=lambda test: states[test].towards_regressed)
        slowest = min(states, key=lambda test: _farthest(states[test]))
        ratio = "" if states[worst].ratio is None else f" ({states[worst].ratio:.4f})"
        line = (
            f"pair {self.pairs}: {decided} of {len(states)} figures decided; "
            f"nearest to regressed: {_name(worst)}{ratio}, "
            f"{100 * states[worst].towards_regressed:.0f} % of the evidence it takes"
        )
        if states[slowest].decision is Outcome.UNDECIDED:
            line += f"; farthest from any decision: {_name(slowest)}, {100 * _farthest(states[slowest]):.0f} %"
        return line

    @property
    def _state(self) -> GateState[Series]:
        if self._gate is None:
            raise ValueError("no pair has been seen")
        return self._gate.state

    def _start(self) -> None:
        """Make the gate once its tests are known, and feed it the waiting pairs. Raises ConfigError without a test."""
        if self._gate is None:
            if not self._seen:
                metrics = ", ".join(self.policy.metrics)
                raise ConfigError(
                    f"no workload has {metrics}: there is nothing to test",
                    hint="choose another suite, or other metrics in the policy",
                )
            alike = _ALIKE if self.guest_time else ()
            self._gate = Gate(self.policy, list(self._seen), self.known_noise, seeded=self.guest_time, alike=alike)
        for pair in self._waiting:
            self._gate.add(pair.figures, pair.steps)
        self._waiting = []

    def _tested(self, gate: Gate[Series], test: Test) -> Tested:
        series, metric = test
        usable = [
            (baseline, candidate)
            for baseline, candidate in self._seen[test]
            if baseline is not None and candidate is not None and not complaint(baseline) and not complaint(candidate)
        ]
        state, interval = self._state.tests[test], gate.interval(series, metric)
        return Finding(
            subject=Subject(series.key, series.series, series.simulated, series.label),
            metric=metric,
            outcome=_outcome(state, interval, metric),
            ratio=state.ratio,
            interval=interval,
            matters=self.policy.effect_of(metric),
            baseline=_median([baseline for baseline, _ in usable]),
            candidate=_median([candidate for _, candidate in usable]),
            boots=(state.pairs, state.pairs),
            basis=state,
            guest_time=self.guest_time,
        )


def _outcome(state: SequentialState, interval: Interval | None, metric: Metric) -> Outcome:
    """A test's outcome. The gate asks only whether a figure is worse, but certain improvements are reported."""
    if interval is None or state.decision is not Outcome.NOT_REGRESSED:
        return state.decision
    better = interval.low > 1 if metric.more_is_better else interval.high < 1
    return Outcome.IMPROVED if better else state.decision


def known_noise(points: Mapping[Series, Sequence[Point]], metrics: Sequence[Metric]) -> dict[Test, KnownNoise]:
    """The noise of each test in earlier boots, from the spread of boots of one kernel in one run."""
    noises: dict[Test, KnownNoise] = {}
    for series, group in points.items():
        for metric in metrics:
            boots: dict[tuple[object, ...], list[float]] = {}
            for point in group:
                figure = point.figures.get(metric)
                if figure is not None and complaint(figure) is None:
                    boots.setdefault((point.run_id, point.kernel), []).append(math.log(figure))
            spread = [np.array(figures) for figures in boots.values() if len(figures) > 1]
            degrees = sum(len(figures) - 1 for figures in spread)
            if degrees:
                squares = sum(float(np.square(figures - figures.mean()).sum()) for figures in spread)
                noises[series, metric] = KnownNoise(math.sqrt(squares / degrees), degrees)
    return noises


def _farthest(state: SequentialState) -> float:
    return max(state.towards_regressed, state.towards_not_regressed)


def _name(test: Test) -> str:
    series, metric = test
    return f"{series.label} {metric}"


def _median(figures: Sequence[float]) -> Figure:
    return float(np.median(figures)) if figures else None


def _sort_key(series: Series) -> tuple[str, str, str]:
    return series.series.board, series.series.filesystem, series.series.workload
