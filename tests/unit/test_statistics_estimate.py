"""Means with intervals: against values by hand, and how often they cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, t

from fsjoule.statistics.estimate import bounded_mean, estimate_of
from fsjoule.statistics.spread import clopper_pearson


def test_without_the_instrument_it_is_students_interval() -> None:
    found = estimate_of([10.0, 12.0, 11.0, 13.0])
    assert found is not None
    half = t.ppf(0.975, 3) * math.sqrt(5 / 3) / 2
    assert (found.value, found.n) == (11.5, 4)
    assert (found.low, found.high) == pytest.approx((11.5 - half, 11.5 + half))


def test_the_instrument_stays_however_many_boots_there_are() -> None:
    found = estimate_of([100.0] * 50, instrument=2.0)
    assert found is not None
    assert found.high - found.value == pytest.approx(1.96 * 2.0, rel=1e-3)
    single = estimate_of([100.0], instrument=2.0)
    assert single is not None
    assert (single.high, single.n) == (found.high, 1)


def test_there_is_no_estimate_without_figures_and_none_below_zero() -> None:
    assert estimate_of([]) is None
    assert bounded_mean([], 5) is None
    found = estimate_of([0.0, 2.0])
    assert found is not None
    assert found.low == 0.0


@pytest.mark.parametrize("n", [1, 8, 226])
def test_no_loss_and_only_losses_are_clopper_and_pearsons(n: int) -> None:
    none, whole = bounded_mean([0] * n, 7), bounded_mean([7] * n, 7)
    assert none is not None
    assert whole is not None
    assert (none.low / 7, none.high / 7) == pytest.approx(clopper_pearson(0, n))
    assert (whole.low / 7, whole.high / 7) == pytest.approx(clopper_pearson(n, n))


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("n", [5, 10, 50])
def test_bounds_of_coins_cover_at_least_as_often_as_they_say(rate: float, n: int) -> None:
    covered = 0.0
    for failures in range(n + 1):
        found = bounded_mean([1.0] * failures + [0.0] * (n - failures), 1.0)
        assert found is not None
        covered += float(binom.pmf(failures, n, rate)) if found.low <= rate <= found.high else 0.0
    assert covered >= 0.95


def test_the_mean_of_noisy_boots_and_a_meter_that_is_off_is_covered() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(500):
        found = estimate_of((100 * (1 + rng.normal(0, 0.01)) + rng.normal(0, 2, 8)).tolist(), instrument=1.0)
        assert found is not None
        held += found.low <= 100 <= found.high
    assert held >= 460
