"""A scan between equal ends, on boots whose noise, drift and changes are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fsjoule.statistics.bisection.answer import Measure, Scanned, Standing
from fsjoule.statistics.bisection.question import BisectionEvidence, BisectionQuestion, BootFigures, Purpose
from fsjoule.statistics.bisection.step import next_scan, scan_points

NOISE, EFFECT = 0.01, 0.03
QUESTION = BisectionQuestion(200, (EFFECT,))
STANDING = Standing(1.0, 0.0, 0, 199, (), 0.0, ())


@dataclass
class World:
    """A board whose loss depends on the position alone; its ends were booted three times each."""

    loss: Callable[[int], float]
    seed: int
    drift: float = 0.0
    evidence: BisectionEvidence = field(default_factory=BisectionEvidence)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        for position in (0, 199, 199, 0, 0, 199):
            self.boot(position, Purpose.END)

    def boot(self, position: int, purpose: Purpose) -> None:
        number = len(self.evidence.boots)
        figure = self.loss(position) + float(self._rng.normal(number * self.drift, NOISE))
        boot = BootFigures(position, number, (figure,), purpose=purpose)
        self.evidence = replace(self.evidence, boots=(*self.evidence.boots, boot))

    def scan(self, points: tuple[int, ...], left: int = 200) -> Scanned:
        question = replace(QUESTION, seed=self.seed)
        while isinstance(step := next_scan(question, self.evidence, points, STANDING, left), Measure):
            assert step.purpose is Purpose.SCAN
            self.boot(step.position, step.purpose)
            left -= 1
        return step

    @property
    def scanned(self) -> list[int]:
        return [boot.position for boot in self.evidence.boots if boot.purpose is Purpose.SCAN]


def test_a_loss_and_its_cure_between_equal_ends_are_found() -> None:
    points = scan_points(QUESTION, BisectionEvidence(), 7)
    found, boots = 0, 0
    for seed in range(8):
        world = World(lambda position: EFFECT * (60 <= position < 130), seed, drift=0.001 * (seed % 2))
        told = world.scan(points)
        found += told.worse is not None and 60 <= told.worse < 130
        assert told.worse is None or 60 <= told.worse < 130
        boots += len(world.scanned)
    assert found == 8
    assert boots / 8 < 45


def test_nothing_is_found_where_nothing_is() -> None:
    points = scan_points(QUESTION, BisectionEvidence(), 7)
    told = [World(lambda _: 0.0, seed, drift=0.001 * (seed % 2)).scan(points) for seed in range(8)]
    assert not [each for each in told if each.worse is not None]
    assert sum(len(each.clear) for each in told) >= 0.95 * 8 * len(points)


def test_a_loss_between_two_points_is_not_seen_and_nobody_says_it_is() -> None:
    points = scan_points(QUESTION, BisectionEvidence(), 3)
    assert points == (50, 99, 149)
    told = World(lambda position: 10 * EFFECT * (60 <= position < 90), 1).scan(points)
    assert (told.worse, told.clear, told.undecided) == (None, points, ())


def test_points_are_testable_and_have_kernels_of_their_own() -> None:
    pools = {position: str(position // 50) for position in range(200)}
    evidence = BisectionEvidence(untestable=frozenset({99, 100}), pools=pools)
    points = scan_points(QUESTION, evidence, 7)
    assert len(points) == 2, "the pools of both ends are no points"
    assert {pools[point] for point in points} == {"1", "2"}
    assert not {99, 100} & {*points}
    assert scan_points(BisectionQuestion(2, (EFFECT,)), BisectionEvidence(), 7) == ()
    assert next_scan(QUESTION, evidence, (), STANDING, 9) == Scanned(None, (), ())


def test_what_is_not_decided_or_not_testable_is_told_so() -> None:
    points = scan_points(QUESTION, BisectionEvidence(), 3)
    world = World(lambda _: 0.0, 3)
    world.evidence = replace(world.evidence, untestable=frozenset({99}))
    assert 99 in world.scan(points).undecided
    short = World(lambda _: 0.0, 3)
    assert short.scan(points, left=4) == Scanned(None, (), points)
    assert len(short.scanned) == 4
    assert len({*short.scanned}) == 4, "each point once, and an end"
