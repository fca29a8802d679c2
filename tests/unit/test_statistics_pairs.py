"""Comparisons within pairs: what both sides of a pair share, such as their board's level, is no change and no noise."""

from __future__ import annotations

import numpy as np
import pytest

from fsjoule.model.metrics import Figure, Metric
from fsjoule.statistics.comparison import Comparison, Verdict, compare
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.superiority import KERNELS


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
    assert (found.p, found.q, found.detectable) == (None, None, None)
    assert verdict(*on_boards(1.0, 12)).outcome is Outcome.UNCHANGED


def test_a_pair_without_one_of_its_figures_is_left_out_whole() -> None:
    baseline, candidate = on_boards(0.95, 12)
    found = verdict((None, *baseline[1:]), (*candidate[:-1], 0.0))
    assert (found.n_baseline, found.n_candidate) == (10, 10)
    assert [each.partition(": ")[0] for each in found.left_out] == ["pair 1", "pair 12"]
    nothing = verdict((None,), (1.0,))
    assert (nothing.outcome, nothing.ratio, nothing.more_baseline) == (Outcome.UNDECIDED, None, KERNELS.least_boots)


def test_few_pairs_decide_what_is_large_and_say_what_the_rest_takes() -> None:
    assert verdict(*on_boards(0.5, 3)).outcome is Outcome.REGRESSED
    found = verdict(*on_boards(0.5, 2))
    assert (found.outcome, found.more_baseline, found.more_candidate) == (Outcome.UNDECIDED, 1, 1)
    small = verdict(*on_boards(0.97, 3))
    assert small.outcome is Outcome.UNDECIDED
    assert small.more_baseline is not None
    assert 1 <= small.more_baseline <= 20


def test_less_may_be_better_and_what_is_negligible_is_no_change() -> None:
    one, two = on_boards(0.9, 6)
    [energy] = compare([Comparison("s", Metric.ENERGY, one, two, paired=True)])
    assert energy.outcome is Outcome.IMPROVED
    assert energy.ratio is not None
    assert energy.ratio.interval.low < energy.ratio.value == pytest.approx(0.9, rel=0.02)
    [tiny] = compare([Comparison("s", Metric.ENERGY, (1.0,) * 60, (1.004,) * 60, paired=True)])
    assert tiny.outcome is Outcome.UNCHANGED


def test_too_many_unusable_pairs_are_no_verdict() -> None:
    baseline, candidate = on_boards(0.5, 10)
    found = verdict((None, None, None, *baseline[3:]), candidate)
    assert (found.outcome, found.more_baseline) == (Outcome.NOT_REPRODUCIBLE, None)
    assert found.reason == "3 of 10 figures of the baseline cannot be used"


def test_equal_kernels_on_unequal_boards_are_rarely_called_changed() -> None:
    changed = 0
    for seed in range(10_000, 10_300):
        found = verdict(*on_boards(1.0, 12, seed))
        changed += found.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    assert changed <= 4
