"""Comparisons within pairs: what both sides of a pair share, such as their board's level, is no change and no noise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fsjoule.model.metrics import Figure, Metric
from fsjoule.statistics.comparison import Comparison, Verdict, compare
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ranks import least_paired_p, pairs_for_alpha, signed_rank_test
from fsjoule.statistics.ratios import Floats, median_of_ratios

DIFFERENCES = st.lists(st.integers(-4, 4), min_size=1, max_size=8)


def by_counting(differences: Floats) -> float:
    """The two-sided p-value from all signs of the ranks, the definition itself."""
    apart = differences[differences != 0]
    if not len(apart):
        return 1.0
    ranks = stats.rankdata(np.abs(apart))
    sums = np.array([ranks[np.array(signs, bool)].sum() for signs in product((0, 1), repeat=len(apart))])
    observed = float(ranks[apart > 0].sum())
    return min(1.0, 2 * min(float(np.mean(sums <= observed + 1e-9)), float(np.mean(sums >= observed - 1e-9))))


@given(DIFFERENCES)
def test_it_counts_all_signs_with_ties_and_zeros(differences: list[int]) -> None:
    found = np.array(differences, float)
    assert signed_rank_test(found) == pytest.approx(by_counting(found))
    assert signed_rank_test(-found) == pytest.approx(signed_rank_test(found))


def test_without_ties_it_is_scipys_exact_test() -> None:
    found = np.random.default_rng(3).normal(0.4, 1.0, 20)
    assert signed_rank_test(found) == pytest.approx(float(stats.wilcoxon(found, method="exact").pvalue))
    many = np.random.default_rng(3).normal(0.05, 1.0, 300)
    assert signed_rank_test(many) == pytest.approx(float(stats.wilcoxon(many, method="approx").pvalue))


def test_the_least_p_value_is_that_of_pairs_that_all_agree() -> None:
    assert [signed_rank_test(np.arange(1.0, n + 1)) for n in (1, 5, 9)] == [least_paired_p(n) for n in (1, 5, 9)]
    assert pairs_for_alpha(0.005) == 9


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=1, max_size=10), st.integers(0, 3))
def test_levels_of_pairs_cancel_out_and_swapping_inverts(pairs: list[tuple[float, float]], seed: int) -> None:
    one, two = np.array(pairs).T
    level = np.random.default_rng(seed).lognormal(0, 1, len(pairs))
    plain, lifted = median_of_ratios(one, two), median_of_ratios(level * one, level * two)
    assert lifted.value == pytest.approx(plain.value)
    assert lifted.interval.low == pytest.approx(plain.interval.low)
    back = median_of_ratios(two, one)
    assert back.value == pytest.approx(1 / plain.value)
    assert back.interval.low == pytest.approx(1 / plain.interval.high)


def verdict(baseline: tuple[Figure, ...], candidate: tuple[Figure, ...], *, paired: bool = True) -> Verdict[str]:
    [found] = compare([Comparison("s", Metric.THROUGHPUT, baseline, candidate, paired)])
    return found


def on_boards(ratio: float, pairs: int, seed: int = 1) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Figures of two kernels on three boards that differ by a third; noise of a boot is 1 %."""
    rng = np.random.default_rng(seed)
    level = np.array([100.0, 120.0, 150.0])[np.arange(pairs) % 3]
    one, two = (level * rng.lognormal(0, 0.01, pairs) for _ in range(2))
    return tuple(one.tolist()), tuple((ratio * two).tolist())


def test_a_loss_is_seen_within_boards_that_differ_far_more() -> None:
    sides = on_boards(0.95, 12)
    assert verdict(*sides, paired=False).outcome is not Outcome.REGRESSED
    found = verdict(*sides)
    assert found.outcome is Outcome.REGRESSED
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(0.95, rel=0.02)
    assert found.detectable is not None
    assert found.detectable < 0.03
    assert verdict(*on_boards(1.0, 12)).outcome is Outcome.UNCHANGED


def test_a_pair_without_one_of_its_figures_is_left_out_whole() -> None:
    baseline, candidate = on_boards(0.95, 12)
    found = verdict((None, *baseline[1:]), (*candidate[:-1], 0.0))
    assert (found.n_baseline, found.n_candidate) == (10, 10)
    assert [each.partition(": ")[0] for each in found.left_out] == ["pair 1", "pair 12"]
    nothing = verdict((None,), (1.0,))
    assert (nothing.outcome, nothing.ratio) == (Outcome.TOO_FEW, None)


def test_too_few_pairs_say_how_many_it_takes() -> None:
    found = verdict(*on_boards(0.5, 6))
    assert found.outcome is Outcome.TOO_FEW
    assert found.reason == "the signed-rank test of pairs needs 9 repetitions of each side"
    assert (found.more_baseline, found.more_candidate) == (3, 3)


def test_equal_kernels_on_unequal_boards_are_rarely_called_changed() -> None:
    changed = 0
    for seed in range(10_000, 10_300):
        found = verdict(*on_boards(1.0, 12, seed))
        changed += found.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    assert changed <= 4, "the level is 0.5 %: one is expected"
