from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from simulation import PLAIN, STALLS, Scenario, boots

from fsjoule.statistics.comparison import (
    detectable,
    least_p,
    rank_test,
    relative_noise,
    repetitions_for_alpha,
    repetitions_for_effect,
)

Floats = npt.NDArray[np.float64]
DISTINCT = st.lists(st.integers(1, 10**6), min_size=4, max_size=16, unique=True)
TIED = st.lists(st.integers(1, 4), min_size=2, max_size=5)


def by_counting(a: Floats, b: Floats) -> float:
    """The two-sided p-value from all splits of the figures, with mean ranks; the definition itself."""
    ranks = stats.rankdata(np.concatenate([a, b]))
    sums = np.array([sum(ranks[list(chosen)]) for chosen in combinations(range(len(ranks)), len(a))])
    observed = float(ranks[: len(a)].sum())
    return min(1.0, 2 * min(float(np.mean(sums <= observed + 1e-9)), float(np.mean(sums >= observed - 1e-9))))


@given(DISTINCT, st.data())
def test_without_ties_it_is_scipys_exact_test(figures: list[int], data: st.DataObject) -> None:
    split = data.draw(st.integers(1, len(figures) - 1))
    a, b = np.array(figures[:split], float), np.array(figures[split:], float)
    assert rank_test(a, b) == pytest.approx(float(stats.mannwhitneyu(a, b, method="exact").pvalue))


@given(TIED, TIED)
def test_with_ties_it_counts_all_splits(a: list[int], b: list[int]) -> None:
    first, second = np.array(a, float), np.array(b, float)
    assert rank_test(first, second) == pytest.approx(by_counting(first, second))


@given(TIED, TIED)
def test_swapping_the_samples_changes_nothing(a: list[int], b: list[int]) -> None:
    assert rank_test(np.array(a, float), np.array(b, float)) == rank_test(np.array(b, float), np.array(a, float))


def test_large_samples_are_scipys_approximation_and_meet_the_exact_test() -> None:
    rng = np.random.default_rng(5)
    a, b = np.round(rng.normal(20, 1, 52)), np.round(rng.normal(20.7, 1, 52))
    approximate = float(stats.mannwhitneyu(a, b, method="asymptotic").pvalue)
    assert rank_test(a, b) == approximate
    assert rank_test(a[:50], b[:50]) == pytest.approx(
        float(stats.mannwhitneyu(a[:50], b[:50], method="asymptotic").pvalue), rel=0.5
    )


def test_identical_figures_show_no_difference() -> None:
    assert rank_test(np.full(6, 1.0129), np.full(7, 1.0129)) == 1.0


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 5), (6, 6), (10, 4)])
def test_least_p_is_reached_by_samples_that_do_not_overlap(n: int, m: int) -> None:
    a, b = np.arange(n, dtype=float), 100 + np.arange(m, dtype=float)
    assert rank_test(a, b) == pytest.approx(least_p(n, m))


def test_what_the_rank_test_needs() -> None:
    assert [repetitions_for_alpha(alpha) for alpha in (0.05, 0.01, 0.005, 1e-4)] == [4, 5, 6, 9]


@pytest.mark.parametrize("scenario", [PLAIN, STALLS])
@pytest.mark.parametrize("n", [10, 20])
def test_the_detectable_effect_is_detected(n: int, scenario: Scenario) -> None:
    effect = detectable(scenario.noise, n, n, alpha=0.005, power=0.9)
    a, b = boots(np.random.default_rng(2), scenario, (2, 2000, n))
    found = stats.mannwhitneyu(a, b + math.log1p(-effect), axis=1, method="exact").pvalue <= 0.005
    # Stalls cost some of the power; how much stands in the docs.
    assert (0.86 if scenario is PLAIN else 0.6) <= float(found.mean()) <= 0.95


@given(st.floats(1e-4, 0.2), st.integers(6, 40), st.integers(6, 40))
def test_more_repetitions_and_less_noise_detect_less(noise: float, n: int, m: int) -> None:
    effect = detectable(noise, n, m, alpha=0.005, power=0.9)
    assert 0 < effect < 1
    assert detectable(noise, 2 * n, m, alpha=0.005, power=0.9) < effect
    # p-values are discrete: one repetition more may come a little less near to alpha.
    assert detectable(noise, n + 1, m, alpha=0.005, power=0.9) < effect * 1.01
    assert detectable(noise / 2, n, m, alpha=0.005, power=0.9) < effect
    assert detectable(noise, m, n, alpha=0.005, power=0.9) == pytest.approx(effect)


def test_too_few_repetitions_detect_nothing() -> None:
    assert math.isinf(detectable(0.001, 5, 5, alpha=0.005, power=0.9))


@given(st.floats(0.001, 0.1), st.floats(0.02, 0.3))
def test_enough_repetitions_are_just_enough(noise: float, effect: float) -> None:
    enough = repetitions_for_effect(noise, effect, alpha=0.005, power=0.9)
    assert enough is not None
    assert detectable(noise, enough, enough, alpha=0.005, power=0.9) <= effect
    assert enough == 6 or detectable(noise, enough - 1, enough - 1, alpha=0.005, power=0.9) > effect


def test_some_effects_are_out_of_reach() -> None:
    assert repetitions_for_effect(0.5, 1e-4, alpha=0.005, power=0.9) is None


@pytest.mark.parametrize("n", [6, 20])
def test_noise_is_estimated_and_stalls_do_not_inflate_it(n: int) -> None:
    def median_estimate(scenario: Scenario) -> float:
        a, b = boots(np.random.default_rng(9), scenario, (2, 800, n))
        estimates = [relative_noise(np.exp(x), np.exp(y)) for x, y in zip(a, b, strict=True)]
        return float(np.median([estimate for estimate in estimates if estimate is not None]))

    assert median_estimate(PLAIN) == pytest.approx(0.02, rel=0.07)
    assert median_estimate(STALLS) == pytest.approx(0.02, rel=0.2)


def test_noise_of_mostly_equal_figures_is_not_nought() -> None:
    assert relative_noise(np.array([1.0, 1, 1, 1, 1]), np.array([1.0, 1, 1, 1, 1.1])) == pytest.approx(
        math.sqrt(np.square(np.log([1, 1, 1, 1, 1.1]) - math.log(1.1) / 5).sum() / 8)
    )
    assert relative_noise(np.array([2.0]), np.array([3.0])) is None


@pytest.mark.parametrize(("a", "b"), [([], [1.0]), ([1.0], [])])
def test_no_figures_no_test(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one figure"):
        rank_test(np.array(a), np.array(b))


def test_the_noise_of_very_many_figures_is_found_without_pairing_all_of_them() -> None:
    rng = np.random.default_rng(3)
    many = np.exp(rng.normal(0, 0.02, 30_000))
    assert relative_noise(many, many[:50]) == pytest.approx(0.02, rel=0.05)
