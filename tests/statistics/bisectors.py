"""Ways to find the first bad of many positions, each on the same draws: ours, and three others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt
from git_bayesect import Bisector as Bayesect
from scipy import stats

from fsjoule.statistics.bisection.answer import AnswerKind, BisectionAnswer
from fsjoule.statistics.bisection.posterior import PlainBootEvidence
from fsjoule.statistics.bisection.question import BisectionEvidence, BisectionQuestion, BootFigures, Purpose
from fsjoule.statistics.bisection.step import step_of

Floats = npt.NDArray[np.float64]
Says = Literal["right", "wrong", "nothing there", "no answer"]


@dataclass(frozen=True, slots=True)
class Case:
    """How boots behave and what is asked. Sizes are differences of logarithms; larger figures are worse.

    A position is bad from a random one on, by `loss`. `stalls` of the boots lose between 5 and 50 % more. Each boot is
    worse than the one before by `drift`, and walks by `walk`. `holes` of the positions cannot be tested, in clusters of
    eight on average. `effect` is the smallest loss that matters. With `seeds` the figures of all positions move
    together from one repetition to the next, as those of a board in guest time do.
    """

    name: str
    loss: float
    effect: float = 0.05
    noise: float = 0.02
    stalls: float = 0.0
    drift: float = 0.0
    walk: float = 0.0
    holes: float = 0.0
    seeds: float = 0.0
    gain: float = 0.0
    positions: int = 1000
    budget: int = 250


@dataclass
class World:
    """One draw of a case: what its boots show. Boot k has the same noise, stall and drift whoever boots what."""

    case: Case
    first_bad: int
    gained: int
    untestable: frozenset[int]
    noise: Floats
    levels: Floats
    booted: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @classmethod
    def draw(cls, case: Case, rng: np.random.Generator) -> World:
        first_bad, gained = (int(at) for at in rng.integers(1, case.positions, 2))
        holes: set[int] = set()
        while len(holes) < case.holes * case.positions:
            start = int(rng.integers(1, case.positions - 1))
            holes.update(range(start, min(start + int(rng.geometric(1 / 8)), case.positions - 1)))
        boots = 4 * case.budget
        stalled = np.where(rng.random(boots) < case.stalls, -np.log1p(-rng.uniform(0.05, 0.5, boots)), 0.0)
        drift = case.drift * np.arange(boots) + np.cumsum(rng.normal(0, case.walk, boots))
        noise = rng.normal(0, case.noise, boots) + stalled + drift
        levels = rng.normal(0, case.seeds, (len(Purpose), boots))
        return cls(case, first_bad, gained, frozenset(holes), noise, levels)

    def seed(self, position: int, purpose: Purpose = Purpose.SEARCH) -> tuple[int, int]:
        """The seed of the next boot: a position's boots have one after the other, each way of confirming its own."""
        kind = list(Purpose).index(Purpose.SEARCH if purpose in {Purpose.END, Purpose.REFERENCE} else purpose)
        return kind, self.booted.count((position, kind))

    def boot(self, position: int, purpose: Purpose = Purpose.SEARCH) -> float:
        change = self.case.loss * (position >= self.first_bad) - self.case.gain * (position >= self.gained)
        seed = self.seed(position, purpose)
        figure = float(self.noise[len(self.booted)] + self.levels[seed]) + change
        self.booted.append((position, seed[0]))
        return figure

    def more(self) -> bool:
        return len(self.booted) < self.case.budget

    def says(self, members: tuple[int, ...]) -> Says:
        return "right" if self.case.loss and self.first_bad in members else "wrong"


@dataclass(frozen=True, slots=True)
class Run:
    """How one bisection ended, with the error rate that it states for its answer."""

    says: Says
    boots: int
    builds: int
    error: float = 0.0


class Bisector(Protocol):
    """Asks the world for boots until it has an answer; `seed` is for its own draws."""

    def __call__(self, world: World, *, seed: int) -> Run: ...


def ours(world: World, *, seed: int) -> Run:
    """`fsjoule bisect`, boot by boot; `next_step` on the whole log gives the same."""
    case = world.case
    question = BisectionQuestion(case.positions, (case.effect,), budget=case.budget, seed=seed, seeded=bool(case.seeds))
    search = PlainBootEvidence.start(question)
    evidence = BisectionEvidence()
    while not isinstance(step := step_of(search, evidence), BisectionAnswer):
        if step.position in world.untestable:
            evidence = BisectionEvidence(evidence.boots, evidence.untestable | {step.position})
            continue
        number = len(evidence.boots)
        board = f"seed {world.seed(step.position, step.purpose)}" if case.seeds else ""
        figures = (world.boot(step.position, step.purpose),)
        boot = BootFigures(step.position, number, figures, board, step.purpose, step.variant)
        evidence = BisectionEvidence((*evidence.boots, boot), evidence.untestable)
        search = search.after(boot)
    says: dict[AnswerKind, Says] = {
        AnswerKind.NO_REGRESSION: "nothing there",
        AnswerKind.UNDECIDED: "no answer",
        AnswerKind.CULPRIT: world.says(step.standing.members),
        AnswerKind.SET: world.says(step.standing.members),
    }
    return _run(world, says[step.kind], step.error)


def git_bisect(world: World, *, seed: int, each: int = 15) -> Run:  # noqa: ARG001 - a protocol
    """`git bisect` on the mean of so many boots against the middle of both ends."""
    low, high = 0, world.case.positions - 1
    good, bad = (np.mean([world.boot(end) for _ in range(each)]) for end in (low, high))
    while high - low > 1:
        middle = (low + high) // 2
        if np.mean([world.boot(middle) for _ in range(each)]) > (good + bad) / 2:
            high = middle
        else:
            low = middle
    return _run(world, world.says((high,)))


def bayesect(world: World, *, seed: int, ends: int = 5, certain: float = 0.99) -> Run:  # noqa: ARG001 - a protocol
    """git_bayesect, which takes yes or no: worse than the middle of so many boots of both ends. Its newest is its 0."""
    last = world.case.positions - 1
    figures = {end: [world.boot(end) for _ in range(ends)] for end in (0, last)}
    middle = sum(float(np.mean(shown)) for shown in figures.values()) / 2
    weights = np.ones(last + 1)
    weights[last] = 0.0  # the good end is not bad
    bisector = Bayesect(weights)
    for end, shown in figures.items():
        for figure in shown:
            bisector.record(last - end, figure > middle)
    with np.errstate(divide="ignore", invalid="ignore"):  # it takes logarithms of zero
        while float(bisector.distribution.max()) < certain:
            if not world.more():
                return _run(world, "no answer")
            at = int(bisector.select())
            bisector.record(at, world.boot(last - at) > middle)
    at = int(bisector.distribution.argmax())
    return _run(world, world.says((last - at,)), 1 - float(bisector.distribution.max()))


# Pinpoint's attempts a position, and the p value below which two positions differ.
_ATTEMPTS: Final = (10, 20, 40, 80, 160)
_DIFFERENT: Final = 0.01


def pinpoint(world: World, *, seed: int) -> Run:  # noqa: ARG001 - a protocol
    """Pinpoint's rule: neighbours differ, are equal, or are measured again; between two that differ it halves.

    The p value is the smaller one of two tests. Two positions are equal if it is above what a loss of this size would
    leave below it in 99 % of cases.
    """
    figures: dict[int, list[float]] = {}
    found: list[int] = []
    todo = [(0, world.case.positions - 1)]
    while todo:
        if len(world.booted) > 2 * world.case.budget:
            return _run(world, "no answer")
        low, high = todo.pop()
        while (differ := _differ(world, figures, low, high)) is None:
            pass
        if differ and high - low == 1:
            found.append(high)
        elif differ:
            middle = (low + high) // 2
            todo += [(middle, high), (low, middle)]
    if not found:
        return _run(world, "nothing there")
    return _run(world, "right" if found == [world.first_bad] and world.case.loss else "wrong")


def _differ(world: World, figures: dict[int, list[float]], low: int, high: int) -> bool | None:
    """Whether both positions differ; None after more boots were needed."""
    shown = [figures.setdefault(position, []) for position in (low, high)]
    least = min(map(len, shown))
    if least >= _ATTEMPTS[0]:
        p = float(_p_values(np.array(shown[0])[None], np.array(shown[1])[None])[0])
        if p <= _DIFFERENT:
            return True
        if least >= _ATTEMPTS[-1] or p > _equal_above(world.case.effect / world.case.noise, least):
            return False
    attempts = next(number for number in _ATTEMPTS if number > least)
    for position in (low, high):
        while len(figures[position]) < attempts:
            figures[position].append(world.boot(position))
    return None


@cache
def _equal_above(distance: float, attempts: int) -> float:
    rng = np.random.default_rng(1)
    p = _p_values(rng.normal(0, 1, (200, attempts)), rng.normal(distance, 1, (200, attempts)))
    return float(np.quantile(p, 0.99))


def _p_values(one: Floats, other: Floats) -> Floats:
    ranks = stats.mannwhitneyu(one, other, axis=1, method="asymptotic").pvalue
    steps = [stats.ks_2samp(a, b, method="asymp").pvalue for a, b in zip(one, other, strict=True)]
    return np.minimum(ranks, np.array(steps))


def _run(world: World, says: Says, error: float = 0.0) -> Run:
    return Run(says, len(world.booted), len({position for position, _ in world.booted}), error)
