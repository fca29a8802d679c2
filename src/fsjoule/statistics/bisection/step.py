"""The next boot of a bisection, or its answer: a pure function of what is asked and what was seen.

Ends first; then the boots that tell most, with a reference boot of an end now and then; then fresh boots of the
candidate and its parent in turn. Every plain boot feeds the posterior, whatever it ran for. Recorded boots do, too, but
end nothing: `no regression` rests on fresh boots of the ends, a culprit on fresh boots of itself and its parent.

Equal ends say nothing of what lies between them: a loss and its cure cancel. A scan boots a few positions between. Each
of these points is asked by itself whether it is worse than the two ends together, by the same posterior as a range of
two positions. The chance of a wrong one is shared between the points. A loss that begins and is cured between two
neighbouring points is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.statistics.bisection.answer import AnswerKind, BisectionAnswer, Measure, Scanned, Second, Standing
from fsjoule.statistics.bisection.levels import Expected, LevelFilters
from fsjoule.statistics.bisection.losses import LossEstimate, likelihoods, loss_at
from fsjoule.statistics.bisection.posterior import PlainBootEvidence, Posterior, gathered, possible_positions
from fsjoule.statistics.bisection.question import (
    BisectionEvidence,
    BisectionQuestion,
    BootFigures,
    ImageVariant,
    Purpose,
)
from fsjoule.statistics.evidence import KnownNoise
from fsjoule.statistics.figures import Turn, interleaved
from fsjoule.statistics.outcome import Confirmed
from fsjoule.statistics.ratios import Floats

# The ends are measured at least so often each, and until a loss is this probable.
_LEAST_ENDS: Final = 3
# So often, where recorded boots show a loss between them.
_LEAST_KNOWN_ENDS: Final = 1
_ENDS_SHOW: Final = 0.9
# A reference boot of an end follows so many other boots.
_REFERENCE_EVERY: Final = 20
# A candidate is confirmed from this probability on, and dropped below the second.
_CANDIDATE: Final = 0.6
_DROPPED: Final = 0.4
# The confirming boots' own rate of wrong culprits against that of the whole bisection.
_FRESH_SHARE: Final = 0.25
# The share of the rate of overlooked losses that one look may take.
_MISSED_SHARE: Final = 0.5
# A second confirmation (layout, cure) is given up after so many boots.
_MOST_PAIRED: Final = 40

_Image = tuple[int, ImageVariant]


def next_step(question: BisectionQuestion, evidence: BisectionEvidence) -> Measure | BisectionAnswer:
    """The next boot, or the answer. The same question and evidence always give the same step."""
    return step_of(gathered(question, evidence), evidence)


def step_of(search: PlainBootEvidence, evidence: BisectionEvidence) -> Measure | BisectionAnswer:
    """The same for boots that have been taken in already."""
    return _Step(search, evidence).decided()


class _Step:
    """One decision: everything that follows from search and evidence."""

    def __init__(self, search: PlainBootEvidence, evidence: BisectionEvidence) -> None:
        self._search = search
        self._question = search.question
        self._evidence = evidence
        self._last = self._question.positions - 1
        self._fresh = [boot for boot in search.boots if boot.purpose is not Purpose.RECORDED]
        self._positions = [boot.position for boot in self._fresh]
        self._built = {boot.position for boot in search.boots}
        self._testable = np.ones(self._question.positions, dtype=np.bool_)
        self._testable[[position for position in evidence.untestable if position not in self._built]] = False
        self._possible = possible_positions(self._question, evidence.pools)

    def decided(self) -> Measure | BisectionAnswer:
        standing = Standing(0.0, 0.0, 0, self._last, (), 0.0, ())
        if not (self._testable[0] and self._testable[self._last] and self._possible.any()):
            return BisectionAnswer(AnswerKind.UNTESTABLE, standing, 0.0)
        if not self._positions:
            return self._end(standing)
        posterior = self._search.posterior(self._possible)
        standing, fresh = self._standing(posterior)
        if (early := self._early(posterior, standing)) is not None:
            return early
        if self._introduced(standing, fresh):
            return self._found(standing, fresh)
        if self._spent:
            second = _second_step(self._search, self._evidence, standing.bad, standing.losses)
            return BisectionAnswer(AnswerKind.UNDECIDED, standing, 0.0, losses=fresh.losses, second=second)
        return self._measured(posterior, standing, fresh)

    def _measured(self, posterior: Posterior, standing: Standing, fresh: Paired) -> Measure:
        if self._at_ends(posterior):
            return self._end(standing)
        confirming = self._fresh[-1].purpose is Purpose.CONFIRMATION
        if standing.probability >= (_DROPPED if confirming else _CANDIDATE):
            position = standing.bad if fresh.turn(self._question.seed + standing.bad) else standing.parent
            return Measure(position, Purpose.CONFIRMATION, standing, runners_up=(standing.parent, standing.bad))
        return self._searched(posterior, standing)

    @property
    def _spent(self) -> bool:
        fresh = sum(boot.purpose is not Purpose.RECORDED for boot in self._evidence.boots)
        return fresh >= self._question.budget

    @property
    def _ends(self) -> int:
        return min(self._positions.count(0), self._positions.count(self._last))

    def _standing(self, posterior: Posterior) -> tuple[Standing, Paired]:
        testable = np.flatnonzero(self._testable)
        until = np.cumsum(posterior.first_bad)[testable]
        group = int(np.argmax(np.diff(until)))
        parent, bad = int(testable[group]), int(testable[group + 1])
        fresh = paired(
            self._search,
            bad,
            [
                (boot, boot.position == bad)
                for boot in self._search.boots
                if boot.purpose is Purpose.CONFIRMATION and boot.position in {parent, bad}
            ],
        )
        members = parent + 1 + np.flatnonzero(self._possible[parent + 1 : bad + 1])
        standing = Standing(
            nothing=posterior.nothing,
            gain=posterior.gain,
            parent=parent,
            bad=bad,
            members=tuple(members.tolist()),
            probability=float(until[group + 1] - until[group]),
            losses=self._search.losses(bad),
            fresh=fresh.ratio,
        )
        return standing, fresh

    def _early(self, posterior: Posterior, standing: Standing) -> BisectionAnswer | None:
        """The answer that needs no search: equal ends, or a loss or none that the clock of its figures leaves open."""
        equal = self._ends >= _LEAST_ENDS and posterior.overlooked <= self._question.beta * _MISSED_SHARE
        shown = posterior.loss >= _ENDS_SHOW and not self._at_ends(posterior)
        hidden_by = self._hidden_by(standing.losses, equal=equal) if equal or shown else None
        if hidden_by is not None:
            return BisectionAnswer(AnswerKind.UNDECIDED, standing, 0.0, hidden_by=hidden_by)
        none = AnswerKind.NO_REGRESSION
        return BisectionAnswer(none, standing, posterior.overlooked, swapped=posterior.gain > 1 / 2) if equal else None

    def _hidden_by(self, losses: Sequence[LossEstimate], *, equal: bool) -> float | None:
        """The step of a clock that leaves a shown loss, or `equal` ends, open; None if another figure shows a loss.

        The gate's rule: a step of more than half of what matters counts against the answer.
        """
        steps = map(max, zip(*(boot.steps for boot in self._search.boots if boot.steps), strict=True))
        hidden: list[float] = []
        shown = False
        for loss, step, effect in zip(losses, steps, self._question.effects, strict=False):
            size = loss.size + math.log1p(step) * (1 if equal else -1)
            if 2 * step > effect and (size > effect / 2) is equal:
                hidden.append(step)
            elif loss.low > 0:
                shown = True
        return max(hidden) if hidden and (equal or not shown) else None

    def _introduced(self, standing: Standing, fresh: Paired) -> bool:
        sure = standing.probability >= 1 - self._question.alpha
        return sure and fresh.enough and fresh.ratio >= -math.log(self._question.alpha * _FRESH_SHARE)

    def _at_ends(self, posterior: Posterior) -> bool:
        shown = posterior.loss >= _ENDS_SHOW
        least = _LEAST_KNOWN_ENDS if shown and len(self._fresh) < len(self._search.boots) else _LEAST_ENDS
        only_ends = all(boot.purpose is Purpose.END for boot in self._fresh)
        return self._ends < least or (only_ends and not shown)

    def _end(self, standing: Standing) -> Measure:
        pairs = Paired(self._positions.count(0), self._positions.count(self._last))
        return Measure(self._last if pairs.turn(self._question.seed) else 0, Purpose.END, standing)

    def _found(self, standing: Standing, fresh: Paired) -> Measure | BisectionAnswer:
        """A candidate that introduces the loss: ask for the other confirmations, or answer."""
        layout = self._layout(standing)
        if isinstance(layout, Measure):
            return layout
        if layout is Confirmed.REFUTED:
            return BisectionAnswer(
                AnswerKind.NO_REGRESSION, standing, standing.error, losses=fresh.losses, layout=layout
            )
        cure = self._cure(standing)
        if isinstance(cure, Measure):
            return cure
        return BisectionAnswer(
            kind=AnswerKind.CULPRIT if len(standing.members) == 1 else AnswerKind.SET,
            standing=standing,
            error=standing.error,
            losses=fresh.losses,
            layout=layout,
            cure=cure,
            second=_second_step(self._search, self._evidence, standing.bad, fresh.losses),
        )

    def _layout(self, standing: Standing) -> Measure | Confirmed | None:
        if not (self._question.layout and self._evidence.layout_possible):
            return None
        boots = [
            (boot, boot.position == standing.bad)
            for boot in self._evidence.boots
            if boot.purpose is Purpose.LAYOUT and boot.position in {standing.parent, standing.bad}
        ]
        images = (standing.parent, ImageVariant.ALIGNED), (standing.bad, ImageVariant.ALIGNED)
        return self._again(standing, Purpose.LAYOUT, boots, images)

    def _cure(self, standing: Standing) -> Measure | Confirmed | None:
        if not (self._question.cure and self._evidence.cure_possible):
            return None
        images = (standing.bad, ImageVariant.REVERTED), (self._last, ImageVariant.PLAIN)
        boots = [
            (boot, boot.variant is ImageVariant.PLAIN)
            for boot in self._evidence.boots
            if boot.purpose is Purpose.CURE and (boot.position, boot.variant) in images
        ]
        return self._again(standing, Purpose.CURE, boots, images)

    def _again(
        self, standing: Standing, purpose: Purpose, boots: list[tuple[BootFigures, bool]], images: tuple[_Image, _Image]
    ) -> Measure | Confirmed:
        """The next boot of a second confirmation, or what it says."""
        pair = paired(self._search, standing.bad, boots)
        if pair.enough and pair.ratio >= -math.log(self._question.alpha * _FRESH_SHARE):
            return Confirmed.CONFIRMED
        if pair.enough and pair.ratio <= math.log(self._question.beta * _MISSED_SHARE):
            return Confirmed.REFUTED
        if len(boots) >= _MOST_PAIRED or self._spent:
            return Confirmed.UNDECIDED
        position, variant = images[pair.turn(self._question.seed + standing.bad)]
        return Measure(position, purpose, standing, variant)

    def _searched(self, posterior: Posterior, standing: Standing) -> Measure:
        since = {end: self._positions[::-1].index(end) for end in (0, self._last)}
        if min(since.values()) >= _REFERENCE_EVERY and not self._question.seeded:
            return Measure(max(since, key=since.__getitem__), Purpose.REFERENCE, standing)
        leading = self._search.metrics[posterior.leading]
        rows, expected = np.searchsorted(leading.edges, np.arange(self._last + 1)), leading.expected()
        told = telling(posterior.first_bad, 1 - posterior.loss, rows, expected)
        position = _most_telling(told, self._testable, self._built)
        loss = standing.losses[posterior.leading]
        after = [
            _hypothetical(posterior.first_bad, 1 - posterior.loss, position, abs(loss.size) / loss.noise, bad=bad)
            for bad in (False, True)
        ]
        built = {*self._built, position}
        others = [_most_telling(telling(*then, rows, expected), self._testable, built) for then in after]
        return Measure(
            position,
            Purpose.SEARCH,
            standing,
            runners_up=tuple(dict.fromkeys(others)),
            bits=min(1.0, float(told[position])),
        )


# A position that has been built already is taken if it tells nearly as much as the best.
_NEARLY: Final = 0.95
# Positions that tell as much but for this share are alike.
_ALIKE: Final = 0.99


def telling(first_bad: Floats, otherwise: float, rows: npt.NDArray[np.int64], expected: Expected) -> Floats:
    """How much a boot of each position would tell, in bits, shape (positions,).

    Every hypothesis expects a figure of a position. A boot tells the more, the further these lie apart against the
    variance that each of them allows: 1/2 log2(1 + variance between / variance within), the mutual information if both
    were normal. What a level is not known for is part of the variance within, so that an end is booted when it is its
    level that one has to know. `rows` has the stretch of each first bad position, `otherwise` the probability of none.
    """
    bad, good = expected.bad[rows], expected.good[rows]
    none = expected.good[-1]
    mean = _split(first_bad, bad, good) + otherwise * none
    square = _split(first_bad, np.square(bad), np.square(good)) + otherwise * none**2
    within = _split(first_bad, expected.bad_variance[rows], expected.good_variance[rows])
    within += otherwise * expected.good_variance[-1]
    return np.log2(1 + np.maximum(square - np.square(mean), 0.0) / within) / 2


def _split(first_bad: Floats, if_bad: Floats, if_good: Floats) -> Floats:
    """Mean over hypotheses, by position: the first value where it is bad (first bad position at or before it)."""
    good = first_bad * if_good
    return np.cumsum(first_bad * if_bad) + good.sum() - np.cumsum(good)


def _most_telling(bits: Floats, testable: npt.NDArray[np.bool_], built: Collection[int]) -> int:
    """The position to boot; `bits` has what each would tell.

    Among positions that tell alike it is the one that the largest power of two divides. So noise seldom moves the
    choice to a neighbour, and what was built or booted ahead is the position that is asked for.
    """
    told = np.where(testable, bits, -1.0)
    known = [position for position in built if told[position] >= _NEARLY * told.max()]
    if known:
        return max(known, key=lambda position: (told[position], -position))
    alike = np.flatnonzero(told >= _ALIKE * told.max()).tolist()
    return max(alike, key=lambda position: (position & -position, told[position]))


def _hypothetical(
    first_bad: Floats, otherwise: float, position: int, distance: float, *, bad: bool
) -> tuple[Floats, float]:
    """`first_bad` and `otherwise` after a boot of that position shows a typical good, or bad, figure.

    These lie `distance` standard deviations apart.
    """
    favour = math.exp(-(min(distance, 30.0) ** 2) / 2)
    weights = first_bad.copy()
    if bad:
        weights[position + 1 :] *= favour
        otherwise *= favour
    else:
        weights[: position + 1] *= favour
    total = weights.sum() + otherwise
    return weights / total, otherwise / total


_CERTAIN: Final = 0.95


def _second_step(
    search: PlainBootEvidence, evidence: BisectionEvidence, bad: int, losses: Sequence[LossEstimate]
) -> Second | None:
    """Another step that the boots show once the loss at `bad` has been taken off; None if there is none.

    `losses` should be those of boots that no other step can have touched: neighbours of the culprit.
    """
    rest = PlainBootEvidence.start(search.question)
    for boot in search.boots:
        if boot.position >= bad:
            less = tuple(figure - loss.size for figure, loss in zip(boot.figures, losses, strict=True))
            rest = rest.after(replace(boot, figures=less))
        else:
            rest = rest.after(boot)
    possible = possible_positions(search.question, evidence.pools)
    possible[bad] = False
    posterior = rest.posterior(possible)
    probability = max(posterior.loss, posterior.gain)
    if probability < _CERTAIN:
        return None
    is_gain = posterior.gain > posterior.loss
    at = posterior.gained if is_gain else int(posterior.first_bad.argmax())
    levels = rest.metrics[0]
    stretch = levels.stretch(at)
    return Second(
        parent=levels.edges[stretch - 1] if stretch else 0,
        bad=levels.edges[stretch] if stretch < len(levels.edges) else search.question.positions - 1,
        gain=is_gain,
        probability=probability,
        losses=rest.losses(at),
    )


# All other boots' evidence on the noise counts as so many degrees of freedom.
_DEGREES: Final = 20
# No kind of drift is ruled out by them.
_LEAST_ODDS: Final = math.log(0.01)
# No verdict before so many boots of each image.
_LEAST: Final = 2


@dataclass(frozen=True, slots=True)
class Paired:
    """The evidence of boots of two images. `ratio` is the logarithm of the likelihood ratio of a loss against none.

    Under no loss it exceeds log(1/a), whenever one looks, with probability a at most.
    """

    first: int = 0
    second: int = 0
    ratio: float = 0.0
    losses: tuple[LossEstimate, ...] = ()

    @property
    def enough(self) -> bool:
        return min(self.first, self.second) >= _LEAST

    def turn(self, seed: int) -> bool:
        """Whether the second image boots next: in random ABBA order, or because it lags behind."""
        if abs(self.first - self.second) > 1:
            return self.second < self.first
        done = self.first + self.second
        return interleaved(done // 2 + 1, seed=seed)[done // 2][done % 2] is Turn.CANDIDATE


def paired(search: PlainBootEvidence, bad: int, boots: Sequence[tuple[BootFigures, bool]]) -> Paired:
    """The evidence of these boots alone, each marked as one of the second image or not.

    Noise, drift and the size of the loss are expected as all boots of the search have them for the position `bad`.
    """
    if not boots:
        return Paired()
    ratios: list[float] = []
    losses: list[LossEstimate] = []
    for metric, effect in enumerate(search.question.effects):
        learnt = search.metrics[metric]
        stretch = learnt.stretch(bad)
        found = loss_at(learnt, stretch)
        odds = np.logaddexp.reduce(learnt.weight[stretch], axis=1)
        odds = np.logaddexp(odds - np.logaddexp.reduce(odds), _LEAST_ODDS)
        levels = LevelFilters.start(KnownNoise(found.noise, _DEGREES), odds).parted(0).parted(1)
        for boot, second in boots:
            levels = levels.after(int(second), boot.number, boot.board, boot.figures[metric])
        both = likelihoods(levels, effect, found)
        ratios.append(float(both.loss[1]) - both.none)
        losses.append(loss_at(levels, 1))
    second = sum(second for _, second in boots)
    ratio = float(np.logaddexp.reduce(ratios)) - math.log(len(ratios))
    return Paired(len(boots) - second, second, ratio, tuple(losses))


# A point is decided after so many boots at least, and left undecided after so many.
_LEAST_AT_POINT: Final = 2
_MOST_AT_POINT: Final = 10
_ENDS: Final = -1  # stands for the ends among the points: they boot in each round, too


def scan_points(question: BisectionQuestion, evidence: BisectionEvidence, count: int) -> tuple[int, ...]:
    """At most `count` positions between the ends, evenly spaced, testable, each with another image."""
    last = question.positions - 1
    known = {evidence.pools.get(0), evidence.pools.get(last)} - {None}
    free = [position for position in range(1, last) if position not in evidence.untestable]
    points: list[int] = []
    for wanted in np.linspace(0, last, count + 2)[1:-1]:
        open_ = [each for each in free if each not in points and evidence.pools.get(each) not in known]
        if not open_:
            break
        nearest = min(open_, key=lambda each: (abs(each - float(wanted)), each))
        points.append(nearest)
        known |= {evidence.pools.get(nearest)} - {None}
    return tuple(sorted(points))


def next_scan(
    question: BisectionQuestion, evidence: BisectionEvidence, points: Sequence[int], standing: Standing, left: int
) -> Measure | Scanned:
    """The next boot of a scan, of which there may be `left`, or what it found. `evidence` has the scan's boots, too."""
    tested = [point for point in points if point not in evidence.untestable]
    chances = {point: _chance(question, _told(question, evidence.boots, point)) for point in tested}
    worse = [point for point in tested if chances[point][0] >= 1 - question.alpha / len(points)]
    clear = tuple(p for p in tested if p not in worse and chances[p][1] <= question.beta * _MISSED_SHARE)
    booted = [boot.position for boot in evidence.boots if boot.purpose is Purpose.SCAN]
    undecided = tuple(point for point in tested if point not in worse and point not in clear)
    unfinished = [point for point in undecided if booted.count(point) < _MOST_AT_POINT]
    if worse or not unfinished or left <= 0:
        lost = tuple(sorted({*points} - {*tested} | {*undecided}))
        return Scanned(min(worse, default=None), clear, lost)
    ends = (0, question.positions - 1)
    counts = {_ENDS: sum(position in ends for position in booted)}
    counts |= {point: booted.count(point) for point in unfinished}
    turn = min(counts.values())
    rng = np.random.default_rng([question.seed, turn])
    order = [each for each in rng.permutation([_ENDS, *points]).tolist() if each in counts]
    order.sort(key=counts.__getitem__)
    first, *then = (ends[turn % 2] if each == _ENDS else each for each in order)
    return Measure(first, Purpose.SCAN, standing, runners_up=tuple(then[:2]))


def _told(question: BisectionQuestion, boots: Sequence[BootFigures], point: int) -> tuple[BootFigures, ...]:
    """The boots that tell of a point, as those of a range of two positions: the ends, and the point."""
    places = {0: 0, point: 1, question.positions - 1: 0}
    return tuple(
        replace(boot, position=places[boot.position])
        for boot in boots
        if boot.variant is ImageVariant.PLAIN and boot.position in places
    )


# A boot of one point changes nothing for the others.
@lru_cache(maxsize=256)
def _chance(question: BisectionQuestion, boots: tuple[BootFigures, ...]) -> tuple[float, float]:
    """How probable it is that a point is worse than the ends, over all metrics and in the one that shows most.

    Neither is known before it has booted often enough.
    """
    if sum(boot.position for boot in boots) < _LEAST_AT_POINT:
        return 0.0, 1.0
    search = reduce(PlainBootEvidence.after, boots, PlainBootEvidence.start(replace(question, positions=2)))
    posterior = search.posterior(np.array([False, True]))
    return posterior.loss, posterior.overlooked
