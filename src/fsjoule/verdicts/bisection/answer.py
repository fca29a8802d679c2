"""The answer of a bisection, as reports take it; its words and its exit codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.model.bisection import WantedKernel
from fsjoule.statistics.bisection.answer import AnswerKind, BisectionAnswer
from fsjoule.statistics.bisection.losses import LossEstimate
from fsjoule.statistics.outcome import Confirmed
from fsjoule.verdicts.bisection.figures import metric_of
from fsjoule.verdicts.bisection.state import BisectionState

# Not those of errors, and none of a gate's 1; 3 is `not decided` there, too.
EXIT_CODES: Final = {
    AnswerKind.CULPRIT: 0,
    AnswerKind.SET: 10,
    AnswerKind.NO_REGRESSION: 11,
    AnswerKind.UNDECIDED: 3,
    AnswerKind.UNTESTABLE: 12,
}
_FOUND: Final = {AnswerKind.CULPRIT, AnswerKind.SET}


@dataclass(frozen=True, slots=True)
class CulpritChange:
    """A figure's change at the culprit, as the ratio of after to before with its 95 % interval."""

    figure: str
    ratio: float
    low: float
    high: float

    @property
    def is_loss(self) -> bool:
        """Whether the whole interval is worse than no change."""
        return self.high < 1 if metric_of(self.figure).more_is_better else self.low > 1

    @property
    def words(self) -> str:
        """`4.9 % slower`."""
        return f"{abs(100 * (self.ratio - 1)):.1f} % {metric_of(self.figure).change(self.ratio)}"


@dataclass(frozen=True, slots=True)
class OtherStep:
    """Another change in the range: after commit `parent`, up to `commit`; `gain` is one for the better."""

    parent: str
    commit: str
    gain: bool
    probability: float
    changes: tuple[CulpritChange, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The result of a scan between equal ends: commits that are as good as these, and unknown ones."""

    clear: tuple[str, ...]
    undecided: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bisected:
    """The answer: `commits` are the culprit, or the commits that are left, oldest first; empty without.

    `error` is the probability that it is wrong. `layout` and `cure` say what the second and third confirmation found,
    None if they were not possible. `parent` is the last good commit that was tested. `between` has what a scan saw,
    None without one. `hidden_by` is the share by which a clock may have rounded the figures, if that alone leaves it
    undecided.
    """

    kind: AnswerKind
    commits: tuple[str, ...]
    parent: str
    error: float
    changes: tuple[CulpritChange, ...]
    layout: Confirmed | None
    cure: Confirmed | None
    swapped: bool
    second: OtherStep | None
    boots: int
    builds: int
    boot_s: float
    build_s: float
    waited_s: float
    between: Between | None = None
    hidden_by: float | None = None


def pair(state: BisectionState) -> tuple[WantedKernel, WantedKernel] | None:
    """The two kernels between which the answer's loss lies, the good one first; None without such an answer."""
    answer = state.step() if state.answered is not None else None
    if not isinstance(answer, BisectionAnswer) or answer.kind not in _FOUND:
        return None
    return WantedKernel(state.commit(answer.standing.parent)), WantedKernel(state.commit(answer.standing.bad))


def bisected(state: BisectionState, answer: BisectionAnswer) -> Bisected:
    """The answer about the state's line."""
    standing, second, scanned = answer.standing, answer.second, answer.scanned
    return Bisected(
        kind=answer.kind,
        commits=tuple(state.commit(position) for position in standing.members) if answer.kind in _FOUND else (),
        parent=state.commit(standing.parent),
        error=answer.error,
        changes=changes(state, answer.losses or standing.losses),
        layout=answer.layout,
        cure=answer.cure,
        swapped=answer.swapped,
        hidden_by=answer.hidden_by,
        second=None
        if second is None
        else OtherStep(
            parent=state.commit(second.parent),
            commit=state.commit(second.bad),
            gain=second.gain,
            probability=second.probability,
            changes=changes(state, second.losses),
        ),
        boots=len(state.booted),
        builds=len(state.built),
        boot_s=sum(each.seconds for each in state.booted),
        build_s=sum(each.seconds for each in state.built),
        waited_s=state.waited_s,
        between=None
        if scanned is None
        else Between(tuple(map(state.commit, scanned.clear)), tuple(map(state.commit, scanned.undecided))),
    )


def changes(state: BisectionState, losses: Sequence[LossEstimate]) -> tuple[CulpritChange, ...]:
    """The loss of each figure; `losses` are in logarithms, in the order of the question's figures, or empty."""
    told: list[CulpritChange] = []
    for figure, loss in zip(state.asked.figures, losses, strict=False):
        sign = -1 if metric_of(figure).more_is_better else 1
        low, high = sorted(math.exp(sign * bound) for bound in (loss.low, loss.high))
        told.append(CulpritChange(figure, math.exp(sign * loss.size), low, high))
    return tuple(told)
