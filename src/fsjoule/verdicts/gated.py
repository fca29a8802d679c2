"""What a gate found, as its reports take it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fsjoule.model.metrics import Figure, Metric
from fsjoule.statistics.gate import Decision, State
from fsjoule.statistics.policy import Policy
from fsjoule.statistics.ratios import Interval
from fsjoule.verdicts.comparison import Subject


class GateVerdict(StrEnum):
    """The gate's answer."""

    REGRESSED = "regressed"
    PASSED = "unchanged or better"
    UNDECIDED = "not decided"
    NO_BASELINE = "no baseline"
    IDENTICAL = "identical"

    @property
    def exit_code(self) -> int:
        """None of them is that of an error."""
        return _EXIT_CODES[self]


_EXIT_CODES: Final = {
    GateVerdict.REGRESSED: 1,
    GateVerdict.PASSED: 0,
    GateVerdict.UNDECIDED: 3,
    GateVerdict.NO_BASELINE: 0,
    GateVerdict.IDENTICAL: 0,
}


@dataclass(frozen=True, slots=True)
class Tested:
    """One test of the gate: a series and a metric, where its test stands, and both sides' medians.

    `effect` is the smallest one that matters, as a fraction of the baseline. `interval` is of the ratio, and holds with
    95 % however early the gate ended; None without a usable pair.
    """

    subject: Subject
    metric: Metric
    state: State
    effect: float
    baseline: Figure
    candidate: Figure
    interval: Interval | None

    @property
    def regressed(self) -> bool:
        return self.state.decision is Decision.REGRESSED

    @property
    def undecided(self) -> bool:
        return self.state.decision is Decision.UNDECIDED

    @property
    def better(self) -> bool:
        """Whether it is better for certain; the gate itself asks only whether it is worse."""
        if self.interval is None or self.state.decision is not Decision.NOT_REGRESSED:
            return False
        return self.interval.low > 1 if self.metric.more_is_better else self.interval.high < 1


@dataclass(frozen=True, slots=True)
class GateSide:
    """One side: what the user called it, and what it was."""

    name: str
    title: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Gated:
    """The answer of a gate and all that it rests on. `ended` says why there were no more pairs.

    `fresh` is whether boots were measured for it; `folder` and `seed` are of that run. `command` repeats it.
    """

    verdict: GateVerdict
    baseline: GateSide
    candidate: GateSide
    policy: Policy
    ended: str
    pairs: int = 0
    tested: tuple[Tested, ...] = ()
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    fresh: bool = False
    folder: str | None = None
    seed: int | None = None
    command: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        return any(one.subject.simulated for one in self.tested)
