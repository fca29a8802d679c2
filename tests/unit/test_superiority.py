"""Which side is better: evidence, e-BH and intervals by numbers that were computed elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from superiority import judge

from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import Floats
from fsjoule.statistics.superiority import (
    GUEST_TIME,
    REAL_TIME,
    SuperiorityStatement,
    _effects,
    _Evidence,
    e_bh,
    residual_noise,
    statements,
)


def one(differences: list[float], noise: float = 0.005) -> SuperiorityStatement:
    """The statement of a run with a single figure of two sides; the run has at least this noise."""
    ((found,),) = statements([[np.array(differences)]], replace(REAL_TIME, least_noise=noise))
    return found


@pytest.mark.parametrize(
    ("differences", "noise", "better", "worse", "equal"),
    [
        ([0.3, 0.31, 0.29], 0.01, 6.256, -9.173, -8.515),
        ([0.3, 0.31], 0.01, 4.806, -7.634, -7.027),
        ([0.1, 0.11, 0.09], 0.01, 3.753, -6.278, -5.220),
        ([0.05, 0.06, 0.05], 0.01, 2.419, -5.009, -3.623),
        ([0.3, 0.31, 0.29], 0.15, 0.678, -1.930, -1.392),
        ([1.487677] * 3, 0.01, 8.915, -14.039, -13.717),
        ([0.0, 0.003, -0.002], 0.01, -1.561, -1.620, 3.515),
        ([0.0] * 5, 0.005, -3.842, -3.842, 8.112),
        ([-0.3, 0.31, 0.29], 0.15, -0.144, -0.494, -0.105),
    ],
)
def test_evidence_is_that_of_another_program(
    differences: list[float], noise: float, better: float, worse: float, equal: float
) -> None:
    """The logarithms to base 10, to three digits."""
    found = _Evidence(np.array(differences), noise, REAL_TIME)
    assert [each / math.log(10) for each in (found.better, found.worse, found.equal)] == pytest.approx(
        [better, worse, equal], abs=6e-4
    )


def test_effects_go_from_the_smallest_to_eight_times_as_much() -> None:
    assert (len(_effects(0.01)), len(_effects(0.05))) == (40, 28)
    assert _effects(0.01)[-2] < math.log(8) <= _effects(0.01)[-1]


def test_e_bh_takes_as_many_as_suffice_together() -> None:
    """28 hypotheses at 1 %: four need 700 each. The first alone would need 2,800, a fifth 560."""
    e_values = np.array([1e-3] * 10 + [3000, 900, 1000, 1500, 5, 0.1] + [1e-3] * 12)
    assert np.flatnonzero(e_bh(np.log(e_values), 0.01)).tolist() == [10, 11, 12, 13]
    assert not e_bh(np.log(np.full(28, 99.0)), 0.01).any()
    assert e_bh(np.log(np.full(28, 100.0)), 0.01).all()
    assert e_bh(np.array([]), 0.01).tolist() == []


def test_the_interval_is_students_with_the_runs_noise() -> None:
    """By hand: (8 * 0.01^2 + 2e-4) / 6 / 3 = 0.0074536^2; Student's 97.5 % at 6 degrees is 2.446912."""
    found = one([0.3, 0.31, 0.29], noise=0.01)
    assert found.interval is not None
    assert found.ratio == pytest.approx(math.exp(0.3))
    half = 2.446912 * 0.0074536
    assert math.log(found.interval.low) == pytest.approx(0.3 - half, abs=1e-6)
    assert math.log(found.interval.high) == pytest.approx(0.3 + half, abs=1e-6)
    assert one([0.3]).interval is None


def test_the_interval_holds_the_truth_in_95_of_100() -> None:
    """With the true noise known as from four boots: what the prior says, drawn 300 times."""
    rng = np.random.default_rng(1)
    noises = 0.02 * np.sqrt(4 / rng.chisquare(4, 300))
    held = 0
    for noise in noises:
        found = one(rng.normal(0.1, math.sqrt(2) * noise, 3).tolist(), noise=0.02)
        held += found.interval is not None and found.interval.holds(math.exp(0.1))
    assert 273 <= held <= 297


def test_the_noise_is_the_residual_of_sides_and_boots() -> None:
    """Three sides, four boots: the mean over pairs of half a variance is the two-way table's own mean square."""
    table = np.random.default_rng(2).normal(0, 0.03, (3, 4))
    rest = table - table.mean(0) - table.mean(1)[:, None] + table.mean()
    pairs = [table[a] - table[b] for a, b in ((0, 1), (0, 2), (1, 2))]
    assert residual_noise([pairs]) == pytest.approx(math.sqrt((rest**2).sum() / (2 * 3)))
    assert residual_noise([[np.array([0.1])], []]) is None


def test_boots_that_agree_by_chance_are_not_without_noise() -> None:
    """One figure that seems not to move, among six that do."""
    noisy: list[list[Floats]] = [[np.array([0.2, -0.2, 0.1])] for _ in range(6)]
    ((calm,), *_) = statements([[np.array([0.05, 0.05, 0.05])], *noisy], REAL_TIME)
    assert calm.outcome is Outcome.UNDECIDED
    assert one([0.05, 0.05, 0.05]).outcome is Outcome.IMPROVED


def test_nothing_is_decided_before_its_boots_and_a_forecast_says_when() -> None:
    assert one([]) == SuperiorityStatement(Outcome.UNDECIDED, 0, more_boots=3)
    two = one([0.3, 0.31])
    assert (two.outcome, two.more_boots) == (Outcome.UNDECIDED, 1)
    ((found,),) = statements([[np.array([0.3, 0.31])]], GUEST_TIME)
    assert (found.outcome, found.decided, found.more_boots) == (Outcome.IMPROVED, True, 0)
    assert one([0.03, 0.01, 0.02], noise=0.02).more_boots == pytest.approx(11, abs=6)
    assert one([0.9, -0.9, 0.02]).more_boots is None


def test_a_certain_small_difference_is_told_and_not_called_equal() -> None:
    small = one([0.015, 0.016, 0.014] * 4)
    assert small.equal > math.log(REAL_TIME.equal_evidence)
    assert small.outcome is Outcome.IMPROVED
    assert one([0.0, 0.001, -0.001, 0.0]).outcome is Outcome.UNCHANGED


def test_sides_are_treated_alike() -> None:
    there, back = one([0.05, 0.06, 0.05, 0.04]), one([-0.05, -0.06, -0.05, -0.04])
    assert (there.outcome, back.outcome) == (Outcome.IMPROVED, Outcome.REGRESSED)
    assert (there.better, there.worse, there.equal) == pytest.approx((back.worse, back.better, back.equal))
    assert there.interval is not None
    assert back.interval is not None
    assert there.interval.low == pytest.approx(1 / back.interval.high)


def test_the_simulation_judges_as_the_rule_does_and_without_a_difference_names_none() -> None:
    """tests/statistics/superiority.py simulates more of it."""
    noise = np.random.default_rng(3).normal(0, 0.02, (40, 14, 2, REAL_TIME.most_boots))
    judged = judge(noise, REAL_TIME)
    assert not judged.named.any()
    apart = noise[:8]
    apart[:, ::2, 0] += 0.1
    judged = judge(apart, REAL_TIME)
    assert not judged.worse.any()
    for run, boots, better, equal in zip(apart, judged.boots.tolist(), judged.better, judged.equal, strict=True):
        found = statements([[figure[0, :boots] - figure[1, :boots]] for figure in run], REAL_TIME)
        outcomes = [one.outcome for (one,) in found]
        assert [each is Outcome.IMPROVED for each in outcomes] == better.tolist()
        assert [each is Outcome.UNCHANGED for each in outcomes] == equal.tolist()
