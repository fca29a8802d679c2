"""The next step of a bisection, or its answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fsjoule.statistics.bisection.losses import LossEstimate
from fsjoule.statistics.bisection.question import ImageVariant, Purpose
from fsjoule.statistics.outcome import Confirmed


class AnswerKind(StrEnum):
    CULPRIT = "culprit"
    SET = "set"
    NO_REGRESSION = "no regression"
    UNDECIDED = "undecided"
    UNTESTABLE = "untestable"


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of the search so far.

    `nothing` and `gain` are the probabilities of no change that matters and of gains only. `parent` and `bad` are the
    neighbouring testable positions between which the first bad one most probably lies: it is one of `members`, with
    the probability `probability`. `losses` has each metric's loss there, none before the first boot. `fresh` is the
    logarithm of the likelihood ratio of this loss against none in confirming boots alone.
    """

    nothing: float
    gain: float
    parent: int
    bad: int
    members: tuple[int, ...]
    probability: float
    losses: tuple[LossEstimate, ...]
    fresh: float = 0.0

    @property
    def error(self) -> float:
        """How probable it is that the first bad position is another one, or that there is none."""
        return max(0.0, 1 - self.probability)


@dataclass(frozen=True, slots=True)
class Measure:
    """Boot that variant of that position next.

    `runners_up` are the positions that come next if this boot turns out good, or bad; they are worth building, and
    worth booting on another board meanwhile. `bits` is how much this boot is expected to tell.
    """

    position: int
    purpose: Purpose
    standing: Standing
    variant: ImageVariant = ImageVariant.PLAIN
    runners_up: tuple[int, ...] = ()
    bits: float = 0.0


@dataclass(frozen=True, slots=True)
class Second:
    """A step besides the culprit's: between the measured positions `parent` and `bad`, a gain or another loss."""

    parent: int
    bad: int
    gain: bool
    probability: float
    losses: tuple[LossEstimate, ...]


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of a scan: the first point worse than the ends, if any; points that are not, and the others."""

    worse: int | None
    clear: tuple[int, ...]
    undecided: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BisectionAnswer:
    """The end of a bisection.

    `error` is the probability that `kind` is wrong, as far as the boots tell. `losses` are those of the confirming
    boots alone, which no choice has flattered. `layout` says whether the loss is there with forced alignment of
    functions, `cure` whether the bad end is free of it without the culprit; both are None unless asked for and
    possible. A candidate whose loss goes with forced alignment only moves code: the answer then is NO_REGRESSION with
    `layout` refuted. `swapped` says that the bad end is better than the good one. `second` is there if one step alone
    fits the boots poorly, `scanned` if the positions between equal ends were looked at. `hidden_by` is set where the
    boots decide, and the share by which a clock may have rounded their figures leaves it open: more would not help.
    """

    kind: AnswerKind
    standing: Standing
    error: float
    losses: tuple[LossEstimate, ...] = ()
    layout: Confirmed | None = None
    cure: Confirmed | None = None
    swapped: bool = False
    second: Second | None = None
    scanned: Scanned | None = None
    hidden_by: float | None = None
