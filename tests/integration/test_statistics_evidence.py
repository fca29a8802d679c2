from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate
from simulation import Scenario, trials

from fsjoule.statistics import evidence as module
from fsjoule.statistics.evidence import Hypotheses, KnownNoise, evidence

Floats = npt.NDArray[np.float64]
HYPOTHESES = Hypotheses.about(-math.log(0.95))


def normal_density(distance: float, sd: float) -> float:
    return math.exp(-((distance / sd) ** 2) / 2) / (sd * math.sqrt(2 * math.pi))


def by_integration(baseline: Floats, candidate: Floats, effect: float, sigma: float) -> float:
    """One block's likelihood from the model's own words: mixture density of each boot, integrated over the level."""
    runs = [*baseline, *candidate - effect]
    stalled = math.hypot(sigma, module.STALL_SD)

    def density(level: float) -> float:
        each = [
            (1 - module.STALL_PROBABILITY) * normal_density(run - level, sigma)
            + module.STALL_PROBABILITY * normal_density(run - level, stalled)
            for run in runs
        ]
        return math.prod(each)

    return float(integrate.quad(density, -3, 3, points=sorted(runs), limit=500)[0])


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ([0.01, -0.02, 0.005], [-0.04, -0.07, -0.05]),
        ([0.01, -0.4, 0.005], [-0.04, -0.07, -0.05]),
        ([0.0, 0.02], [0.01, -0.6]),
        ([0.03], [-0.02]),
    ],
)
def test_a_blocks_likelihood_is_the_integral_over_its_level(baseline: list[float], candidate: list[float]) -> None:
    effects = np.array([-0.05, 0.0, 0.1])
    first, second = np.array(baseline), np.array(candidate)
    ours = module._log_likelihood(first, second, effects)
    for number in (18, 22, 26):
        sigma = float(module._SIGMAS[number])
        expected = [math.log(by_integration(first, second, float(effect), sigma)) for effect in effects]
        # A constant that all effects and noises share is left out.
        constant = -(len(first) + len(second) - 1) / 2 * math.log(2 * math.pi)
        assert ours[:, number] + constant == pytest.approx(expected, abs=1e-6)


def test_trials_side_by_side_are_the_same_as_one_by_one() -> None:
    baseline, candidate = trials(np.random.default_rng(1), Scenario(stalls=0.1), 5, 7)
    together = evidence(baseline, candidate, HYPOTHESES)
    for i in range(5):
        alone = evidence(baseline[i], candidate[i], HYPOTHESES)
        assert alone.regressed == pytest.approx(together.regressed[i])
        assert alone.not_regressed == pytest.approx(together.not_regressed[i])
        assert alone.relative_noise == pytest.approx(together.relative_noise[i])


def test_later_pairs_do_not_change_earlier_evidence() -> None:
    baseline, candidate = trials(np.random.default_rng(2), Scenario(), 3, 8)
    whole, part = evidence(baseline, candidate, HYPOTHESES), evidence(baseline[:, :5], candidate[:, :5], HYPOTHESES)
    assert whole.regressed[:, :5] == pytest.approx(part.regressed)


def test_the_unit_does_not_matter() -> None:
    baseline, candidate = trials(np.random.default_rng(3), Scenario(), 3, 6)
    here = evidence(baseline, candidate, HYPOTHESES)
    there = evidence(baseline + 11, candidate + 11, HYPOTHESES)
    assert there.regressed == pytest.approx(here.regressed, abs=1e-6)


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_e_values_keep_their_promise_over_the_noise_they_assume(loss: float) -> None:
    """Ville: where its denominator's hypothesis holds, an e-value ever exceeds 1/a with probability a at most."""
    rng = np.random.default_rng(4)
    noises = rng.choice(module._SIGMAS, 300)
    baseline, candidate = trials(rng, Scenario(noise=1.0, stalls=0.0), 300, 8)
    baseline, candidate = noises[:, None] * baseline, noises[:, None] * candidate + math.log1p(-loss)
    found = evidence(baseline, candidate, HYPOTHESES)
    wrong = found.not_regressed if loss else found.regressed
    for a in (0.1, 0.02):
        share = float(np.mean(wrong.max(axis=1) >= -math.log(a)))
        assert share <= a + 3 * math.sqrt(a * (1 - a) / 300)


def test_the_noise_is_found() -> None:
    for noise in (0.002, 0.02, 0.1):
        baseline, candidate = trials(np.random.default_rng(5), Scenario(noise), 20, 20)
        found = evidence(baseline, candidate, HYPOTHESES).relative_noise[:, -1]
        assert float(np.median(found)) == pytest.approx(noise, rel=0.15)


def test_history_speeds_up_and_counts_little() -> None:
    baseline, candidate = trials(np.random.default_rng(6), Scenario(), 100, 3, loss=0.05)
    without = evidence(baseline, candidate, HYPOTHESES).regressed[:, -1]
    right = evidence(baseline, candidate, HYPOTHESES, KnownNoise(0.02, 30)).regressed[:, -1]
    assert float(np.median(right)) > float(np.median(without))
    more = evidence(baseline, candidate, HYPOTHESES, KnownNoise(0.02, 3000)).regressed[:, -1]
    assert more == pytest.approx(right)
    none = evidence(baseline, candidate, HYPOTHESES, KnownNoise(0.02, 0)).regressed[:, -1]
    assert none == pytest.approx(without)


@pytest.mark.parametrize("smallest", [0.001, 0.05, 0.5])
def test_the_grids_begin_at_what_matters_and_reach_far(smallest: float) -> None:
    found = Hypotheses.about(smallest)
    assert found.losses[0] == -smallest
    assert found.gains[0] == 0
    assert found.losses[-1] <= -math.log(8) + 1e-9
    assert found.gains[-1] >= math.log(8) - 1e-9
    for weights in (found.loss_weights, found.gain_weights):
        assert float(np.exp(weights).sum()) == pytest.approx(1)
