"""What a bisection states about itself is what happens, on a few hundred cheap ones with a fixed seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bisectors import Bisector, Case, World, bayesect, git_bisect, ours, pinpoint

from fsjoule.statistics.bisection.forecast import capacity, forecast, three_phases
from fsjoule.statistics.bisection.levels import LevelFilters
from fsjoule.statistics.bisection.losses import likelihoods, loss_at
from fsjoule.statistics.bisection.posterior import PlainBootEvidence, possible_positions
from fsjoule.statistics.bisection.question import BisectionQuestion, BootFigures
from fsjoule.statistics.evidence import KnownNoise

POSITIONS = 16
LOSS = 0.04


@pytest.mark.parametrize("stalls", [0.0, 0.05])
@pytest.mark.parametrize("drift", [0.0, 0.003])
def test_the_posterior_is_as_sure_as_it_is_right(stalls: float, drift: float) -> None:
    """A calibrated posterior gives the truth, on average, the probability that it gives its own guesses."""
    case = Case("", LOSS, LOSS, stalls=stalls, drift=drift, positions=POSITIONS, budget=30)
    question = BisectionQuestion(POSITIONS, (LOSS,))
    possible = possible_positions(question, {})
    truth, own = [], []
    for trial in range(60):
        rng = np.random.default_rng([3, trial])
        world = World.draw(case, rng)
        search = PlainBootEvidence.start(question)
        for number, position in enumerate(rng.integers(0, POSITIONS, 24).tolist()):
            search = search.after(BootFigures(position, number, (world.boot(position),)))
        guesses = search.posterior(possible).first_bad
        truth.append(guesses[world.first_bad])
        own.append(np.square(guesses).sum() / guesses.sum())
    spread = float(np.std(truth)) / math.sqrt(len(truth))
    assert np.mean(truth) == pytest.approx(np.mean(own), abs=3 * spread)
    assert np.mean(truth) > 0.25  # a flat posterior would be calibrated, too, at 1/15


def test_stated_errors_are_not_exceeded() -> None:
    case = Case("", 0.05, positions=64)
    runs = [ours(World.draw(case, np.random.default_rng([5, trial])), seed=trial) for trial in range(100)]
    wrong = sum(run.says != "right" for run in runs)
    assert wrong <= 4  # 1 % overlooked and 0.5 % wrong are stated; more than 4 of 100 would come once in 60 times
    assert all(run.error <= 0.005 for run in runs if run.says == "right")
    boots = np.array([run.boots for run in runs])
    assert boots.mean() <= 1.3 * three_phases(case.positions, 2.5).boots

    expected = forecast(BisectionQuestion(case.positions, (case.effect,)), (case.noise,))
    assert boots.mean() == pytest.approx(expected.boots, rel=0.15)
    assert np.mean((expected.low <= boots) & (boots <= expected.high)) >= 0.8
    assert np.mean([run.builds for run in runs]) == pytest.approx(expected.builds, rel=0.2)


@pytest.mark.parametrize("case", [Case("", 0.0, stalls=0.05, positions=64), Case("", -0.05, drift=0.003, positions=64)])
def test_nothing_is_blamed_where_nothing_became_worse(case: Case) -> None:
    runs = [ours(World.draw(case, np.random.default_rng([7, trial])), seed=trial) for trial in range(60)]
    assert [run.says for run in runs].count("nothing there") >= 59
    assert "wrong" not in {run.says for run in runs}
    assert np.mean([run.boots for run in runs]) <= 14


def test_untestable_clusters_leave_the_truth_in_the_set() -> None:
    case = Case("", 0.05, noise=0.01, holes=0.3, positions=100)
    runs = [ours(World.draw(case, np.random.default_rng([8, trial])), seed=trial) for trial in range(40)]
    assert [run.says for run in runs].count("right") >= 39


@pytest.mark.parametrize(("loss", "expected", "boots"), [(0.002, "right", 22), (0.0, "nothing there", 9)])
def test_a_loss_far_below_what_seeds_do_is_found(loss: float, expected: str, boots: int) -> None:
    """In guest time: all positions have what a seed does, and a search that took it for noise found nothing."""
    case = Case("", loss, effect=0.002, noise=0.0002, seeds=0.01, positions=200)
    runs = [ours(World.draw(case, np.random.default_rng([10, trial])), seed=trial) for trial in range(20)]
    assert {run.says for run in runs} == {expected}
    assert np.mean([run.boots for run in runs]) <= boots


@pytest.mark.parametrize("method", [git_bisect, bayesect, pinpoint])
def test_other_methods_find_what_is_plain_to_see(method: Bisector) -> None:
    case = Case("", 0.05, noise=0.004, positions=64, budget=400)
    for trial in range(3):
        run = method(World.draw(case, np.random.default_rng([9, trial])), seed=trial)
        assert run.says == "right"


def test_levels_are_what_least_squares_finds() -> None:
    """With much known of the noise and no stall in sight, a filter is a regression."""
    rng = np.random.default_rng(2)
    positions = rng.integers(0, 10, 30)
    figures = 7.0 + 0.05 * (positions >= 4) + rng.normal(0, 0.01, 30)
    levels = LevelFilters.start(KnownNoise(0.01, 200), np.log([1 - 2e-9, 1e-9, 1e-9]))
    for number, (position, figure) in enumerate(zip(positions.tolist(), figures.tolist(), strict=True)):
        levels = levels.after(position, number, "", figure)
    stretch = levels.stretch(4)
    found = loss_at(levels, stretch)
    assert found.size == pytest.approx(figures[positions >= 4].mean() - figures[positions < 4].mean(), abs=1e-3)
    half = 1.96 * 0.01 * math.sqrt(1 / (positions >= 4).sum() + 1 / (positions < 4).sum())
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.1)
    assert likelihoods(levels, 0.05).loss.argmax() == stretch


def test_limits_are_the_published_ones() -> None:
    assert [round(capacity(distance), 3) for distance in (2.5, 1.5, 1.0, 0.5)] == [0.637, 0.319, 0.161, 0.044]
    assert capacity(30.0) == pytest.approx(1.0)
    assert [round(three_phases(1000, distance).boots) for distance in (2.5, 1.5, 1.0)] == [32, 77, 165]
    assert round(three_phases(1000, 0.5).search) == 269


def test_a_forecast_says_what_the_budget_can_find() -> None:
    enough = forecast(BisectionQuestion(1000, (0.05, 0.05), budget=200), (0.02, 0.1))
    assert enough.within_budget
    assert enough.effects[0] < 0.05  # the calmer metric decides
    assert enough.low < enough.boots < enough.high <= 200
    scarce = forecast(BisectionQuestion(1000, (0.02,), budget=200), (0.02,))
    assert not scarce.within_budget
    assert scarce.effects[0] > 0.02
    again = forecast(BisectionQuestion(1000, scarce.effects, budget=200), (0.02,))
    assert again.high == pytest.approx(200, abs=1)
    assert math.isinf(forecast(BisectionQuestion(1000, (0.02,), budget=12), (0.001,)).effects[0])
    with pytest.raises(ValueError, match="noise"):
        forecast(BisectionQuestion(1000, (0.02,)), (0.0,))
