"""A bisection's decisions, on boots whose noise, drift and change are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from fsjoule.statistics.bisection.answer import AnswerKind, BisectionAnswer, Measure
from fsjoule.statistics.bisection.posterior import gathered
from fsjoule.statistics.bisection.question import (
    BisectionEvidence,
    BisectionQuestion,
    BootFigures,
    ImageVariant,
    Purpose,
)
from fsjoule.statistics.bisection.step import next_step
from fsjoule.statistics.outcome import Confirmed

NOISE = 0.004
EFFECT = 0.02


@dataclass
class Range:
    """Positions whose figures are known: a base per position, noise, and what befalls some boots."""

    base: Callable[[int, ImageVariant], tuple[float, ...]]
    noise: float = NOISE
    seed: int = 1
    untestable: frozenset[int] = frozenset()
    boards: Iterator[str] | None = None
    evidence: BisectionEvidence = field(default_factory=BisectionEvidence)

    def run(self, question: BisectionQuestion) -> BisectionAnswer:
        rng = np.random.default_rng(self.seed)
        while isinstance(step := next_step(question, self.evidence), Measure):
            if step.position in self.untestable:
                self.evidence = replace(self.evidence, untestable=self.evidence.untestable | {step.position})
                continue
            base = self.base(step.position, step.variant)
            figures = tuple(float(figure + rng.normal(0, self.noise)) for figure in base)
            number, board = len(self.evidence.boots), next(self.boards) if self.boards else ""
            boot = BootFigures(step.position, number, figures, board, step.purpose, step.variant)
            self.evidence = replace(self.evidence, boots=(*self.evidence.boots, boot))
        return step

    def purposes(self) -> list[Purpose]:
        return [boot.purpose for boot in self.evidence.boots]


def one_step(at: int, loss: float = EFFECT) -> Callable[[int, ImageVariant], tuple[float, ...]]:
    return lambda position, _: (loss * (position >= at),)


def test_a_culprit_is_found_after_its_ends_and_confirmed_by_fresh_boots() -> None:
    world = Range(one_step(37))
    answer = world.run(BisectionQuestion(100, (EFFECT,)))
    assert (answer.kind, answer.standing.members) == (AnswerKind.CULPRIT, (37,))
    assert answer.error <= 0.005
    assert answer.losses[0].low < EFFECT < answer.losses[0].high
    assert answer.losses[0].noise == pytest.approx(NOISE, rel=0.6)
    assert (answer.layout, answer.cure, answer.second, answer.swapped) == (None, None, None, False)
    assert world.purposes()[:6] == [Purpose.END] * 6
    assert {boot.position for boot in world.evidence.boots[:6]} == {0, 99}
    fresh = [boot.position for boot in world.evidence.boots if boot.purpose is Purpose.CONFIRMATION]
    assert set(fresh) == {36, 37}
    assert abs(fresh.count(36) - fresh.count(37)) <= 1
    assert len(world.evidence.boots) <= 35


def test_the_same_evidence_gives_the_same_step_and_more_evidence_continues_it() -> None:
    question = BisectionQuestion(100, (EFFECT,), seed=4)
    world = Range(one_step(61))
    answer = world.run(question)
    for count in range(len(world.evidence.boots)):
        evidence = replace(world.evidence, boots=world.evidence.boots[:count])
        step = next_step(question, evidence)
        assert isinstance(step, Measure)
        assert (step.position, step.purpose) == (
            world.evidence.boots[count].position,
            world.evidence.boots[count].purpose,
        )
        assert next_step(question, evidence) == step
    assert next_step(question, world.evidence) == answer


def test_runners_up_are_what_comes_next() -> None:
    question = BisectionQuestion(1000, (EFFECT,))
    world = Range(one_step(300), noise=NOISE / 2)
    world.run(question)
    boots = world.evidence.boots
    foreseen: list[bool] = []
    for count in range(1, len(boots)):
        step = next_step(question, replace(world.evidence, boots=boots[:count]))
        assert isinstance(step, Measure)
        if step.purpose is Purpose.SEARCH and boots[count + 1].purpose is Purpose.SEARCH:
            assert 0 < step.bits <= 1
            foreseen.append(any(abs(boots[count + 1].position - other) <= 12 for other in step.runners_up))
    assert np.mean(foreseen) > 0.7


@pytest.mark.parametrize("change", [0.0, -EFFECT, -5 * EFFECT])
def test_neither_nothing_nor_an_improvement_is_blamed(change: float) -> None:
    world = Range(one_step(50, change))
    answer = world.run(BisectionQuestion(100, (EFFECT,)))
    assert answer.kind is AnswerKind.NO_REGRESSION
    assert answer.swapped == (change < 0)
    assert set(world.purposes()) == {Purpose.END}
    assert answer.error <= 0.005


def test_an_improvement_before_the_loss_is_not_blamed() -> None:
    world = Range(lambda position, _: (-0.5 * EFFECT * (position >= 20) + 2 * EFFECT * (position >= 70),))
    answer = world.run(BisectionQuestion(100, (EFFECT,)))
    assert (answer.kind, answer.standing.members) == (AnswerKind.CULPRIT, (70,))


def test_the_larger_of_two_losses_comes_first_and_the_other_is_told() -> None:
    world = Range(lambda position, _: (EFFECT * (position >= 20) + 2 * EFFECT * (position >= 70),))
    answer = world.run(BisectionQuestion(100, (EFFECT,)))
    assert (answer.kind, answer.standing.members) == (AnswerKind.CULPRIT, (70,))
    assert answer.second is not None
    assert answer.second.parent < 20 <= answer.second.bad
    assert not answer.second.gain
    assert answer.second.losses[0].size == pytest.approx(EFFECT, rel=0.4)


def test_positions_that_cannot_be_tested_leave_a_set() -> None:
    holes = frozenset(range(30, 41))
    world = Range(one_step(37), untestable=holes)
    answer = world.run(BisectionQuestion(100, (EFFECT,)))
    assert answer.kind is AnswerKind.SET
    assert answer.standing.members == tuple(range(30, 42))
    assert (answer.standing.parent, answer.standing.bad) == (29, 41)
    assert all(boot.position not in holes for boot in world.evidence.boots)


@pytest.mark.parametrize("end", [0, 99])
def test_a_range_whose_end_cannot_be_tested_is_untestable(end: int) -> None:
    step = next_step(BisectionQuestion(100, (EFFECT,)), BisectionEvidence(untestable=frozenset({end})))
    assert isinstance(step, BisectionAnswer)
    assert step.kind is AnswerKind.UNTESTABLE


def test_a_position_whose_image_is_its_parents_is_never_blamed() -> None:
    world = Range(one_step(37), evidence=BisectionEvidence(pools={30: "a", 37: "a", 80: "b", 90: "b"}))
    assert world.run(BisectionQuestion(100, (EFFECT,), budget=60)).standing.members != (37,)
    world = Range(one_step(38), evidence=BisectionEvidence(pools=dict.fromkeys(range(20, 38), "a")))
    answer = world.run(BisectionQuestion(100, (EFFECT,)))
    assert answer.standing.members == (38,)
    apart = Range(
        one_step(30), untestable=frozenset(range(30, 36)), evidence=BisectionEvidence(pools={33: "a", 36: "a"})
    )
    assert apart.run(BisectionQuestion(100, (EFFECT,))).standing.members == (30, 31, 32, 33)


def test_boots_of_another_line_do_not_replace_the_ends() -> None:
    """A line inside of a merge begins with the boots of its commits that another line needed."""
    known = tuple(BootFigures(50, number, (0.0,), purpose=Purpose.CONFIRMATION) for number in range(4))
    world = Range(one_step(70), evidence=BisectionEvidence(known))
    answer = world.run(BisectionQuestion(100, (EFFECT,)))
    assert {boot.position for boot in world.evidence.boots[4:10]} == {0, 99}
    assert answer.standing.members == (70,)


def test_beyond_the_budget_nothing_is_decided() -> None:
    world = Range(one_step(37), noise=EFFECT)
    answer = world.run(BisectionQuestion(100, (EFFECT,), budget=25))
    assert answer.kind is AnswerKind.UNDECIDED
    assert len(world.evidence.boots) == 25


def test_the_metric_that_lost_is_the_one_that_is_followed() -> None:
    def base(position: int, _: ImageVariant) -> tuple[float, ...]:
        return (0.0, EFFECT * (position >= 37), math.nan, -EFFECT * (position >= 60))

    world = Range(base)
    answer = world.run(BisectionQuestion(100, (EFFECT,) * 4))
    assert (answer.kind, answer.standing.members) == (AnswerKind.CULPRIT, (37,))
    assert answer.losses[1].low > 0 > answer.losses[0].low
    assert len(world.evidence.boots) <= 40


def test_boards_have_levels_of_their_own() -> None:
    levels = {"one": 0.0, "other": 0.3}
    names = iter(["one", "other", "other", "one", "other"] * 40)
    world = Range(one_step(37), boards=names)
    question = BisectionQuestion(100, (EFFECT,))
    rng = np.random.default_rng(1)
    while isinstance(step := next_step(question, world.evidence), Measure):
        board = next(names)
        figure = levels[board] + EFFECT * (step.position >= 37) + float(rng.normal(0, NOISE))
        boot = BootFigures(step.position, len(world.evidence.boots), (figure,), board, step.purpose)
        world.evidence = replace(world.evidence, boots=(*world.evidence.boots, boot))
    assert (step.kind, step.standing.members) == (AnswerKind.CULPRIT, (37,))


def test_drift_is_no_loss() -> None:
    world = Range(lambda position, _: (0.004 * len(world.evidence.boots) + EFFECT * (position >= 37),))
    assert world.run(BisectionQuestion(100, (EFFECT,))).standing.members == (37,)
    world = Range(lambda _, __: (0.004 * len(world.evidence.boots),))
    assert world.run(BisectionQuestion(100, (EFFECT,))).kind is AnswerKind.NO_REGRESSION


def test_one_stalled_boot_moves_little() -> None:
    question = BisectionQuestion(100, (EFFECT,))
    world = Range(one_step(37))
    world.run(question)
    boots = world.evidence.boots
    plain = gathered(question, BisectionEvidence(boots))
    for stalled in (0, 1, 9, len(boots) - 1):
        figures = (boots[stalled].figures[0] + 0.5,)
        moved = gathered(
            question,
            BisectionEvidence((*boots[:stalled], replace(boots[stalled], figures=figures), *boots[stalled + 1 :])),
        )
        possible = np.arange(100) > 0
        assert moved.posterior(possible).first_bad[37] == pytest.approx(
            plain.posterior(possible).first_bad[37], abs=0.1
        )
        assert moved.losses(37)[0].size == pytest.approx(plain.losses(37)[0].size, abs=EFFECT / 4)


def confirmed_twice(reverted: float, aligned: float) -> Range:
    def base(position: int, variant: ImageVariant) -> tuple[float, ...]:
        if variant is ImageVariant.REVERTED:
            return (reverted,)
        return ((aligned if variant is ImageVariant.ALIGNED else EFFECT) * (position >= 37),)

    return Range(base)


def test_layout_and_cure_are_two_more_statements() -> None:
    question = BisectionQuestion(100, (EFFECT,), layout=True, cure=True)
    world = confirmed_twice(reverted=0.0, aligned=EFFECT)
    answer = world.run(question)
    assert answer.kind is AnswerKind.CULPRIT
    assert (answer.layout, answer.cure) == (Confirmed.CONFIRMED, Confirmed.CONFIRMED)
    asked = {(boot.purpose, boot.position, boot.variant) for boot in world.evidence.boots}
    assert {
        (Purpose.LAYOUT, 36, ImageVariant.ALIGNED),
        (Purpose.LAYOUT, 37, ImageVariant.ALIGNED),
        (Purpose.CURE, 37, ImageVariant.REVERTED),
        (Purpose.CURE, 99, ImageVariant.PLAIN),
    } <= asked

    answer = confirmed_twice(reverted=EFFECT, aligned=EFFECT).run(question)
    assert (answer.kind, answer.layout, answer.cure) == (AnswerKind.CULPRIT, Confirmed.CONFIRMED, Confirmed.REFUTED)

    world = confirmed_twice(reverted=0.0, aligned=0.0)
    answer = world.run(question)
    assert (answer.kind, answer.layout) == (AnswerKind.NO_REGRESSION, Confirmed.REFUTED)
    assert Purpose.CURE not in world.purposes()

    world = confirmed_twice(reverted=0.0, aligned=EFFECT)
    world.evidence = BisectionEvidence(cure_possible=False, layout_possible=False)
    answer = world.run(question)
    assert (answer.kind, answer.layout, answer.cure) == (AnswerKind.CULPRIT, None, None)


@pytest.mark.parametrize(
    ("positions", "effects", "words"),
    [(1, (0.1,), "ends?"), (5, (), "effects"), (5, (-0.1,), "effects"), (5, (math.nan,), "eff")],
)
def test_a_question_without_sense_is_refused(positions: int, effects: tuple[float, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BisectionQuestion(positions, effects)
    with pytest.raises(ValueError, match="noises"):
        BisectionQuestion(5, (0.1,), noise=(None, None))


def recorded(loss: float, seed: int, runs: int = 2, boots: int = 5) -> tuple[BootFigures, ...]:
    """Boots of both ends in turn, in earlier runs with levels of their own."""
    rng = np.random.default_rng([seed, 99])
    found: list[BootFigures] = []
    for run in range(runs):
        level = rng.normal(0, 10 * NOISE)
        for number in range(2 * boots):
            position = 99 * (number % 2)
            figure = float(level + loss * (position > 0) + rng.normal(0, NOISE))
            found.append(BootFigures(position, number - 2 * boots, (figure,), f"run {run}", Purpose.RECORDED))
    return tuple(found)


def test_recorded_boots_of_the_ends_save_fresh_ones_and_confirmation_is_fresh() -> None:
    with_them, without = 0, 0
    for seed in range(6):
        known = Range(one_step(37), seed=seed, evidence=BisectionEvidence(recorded(EFFECT, seed)))
        answer = known.run(BisectionQuestion(100, (EFFECT,), seed=seed))
        assert (answer.kind, answer.standing.members) == (AnswerKind.CULPRIT, (37,))
        fresh = [boot for boot in known.evidence.boots if boot.purpose is not Purpose.RECORDED]
        assert {boot.position for boot in fresh if boot.purpose is Purpose.CONFIRMATION} == {36, 37}
        assert {0, 99} <= {boot.position for boot in fresh}
        with_them += len(fresh)
        alone = Range(one_step(37), seed=seed)
        alone.run(BisectionQuestion(100, (EFFECT,), seed=seed))
        without += len(alone.evidence.boots)
    assert with_them <= without - 6 * 3


def test_recorded_boots_that_the_board_does_not_show_any_more_blame_nobody() -> None:
    for seed in range(6):
        world = Range(lambda _position, _variant: (0.0,), seed=seed, evidence=BisectionEvidence(recorded(EFFECT, seed)))
        answer = world.run(BisectionQuestion(100, (EFFECT,), seed=seed))
        assert answer.kind is AnswerKind.NO_REGRESSION
        fresh = [boot.position for boot in world.evidence.boots if boot.purpose is not Purpose.RECORDED]
        assert min(fresh.count(0), fresh.count(99)) >= 3


def test_recorded_boots_that_show_nothing_end_nothing() -> None:
    world = Range(one_step(37), evidence=BisectionEvidence(recorded(0.0, 1)))
    assert world.run(BisectionQuestion(100, (EFFECT,))).standing.members == (37,)
    budget = Range(one_step(37), evidence=BisectionEvidence(recorded(EFFECT, 1)))
    assert budget.run(BisectionQuestion(100, (EFFECT,), budget=6)).kind is AnswerKind.UNDECIDED
    assert len(budget.evidence.boots) == len(recorded(EFFECT, 1)) + 6, "a budget is one of fresh boots"
