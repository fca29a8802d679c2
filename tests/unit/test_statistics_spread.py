"""Means with deviations, whether they differ, and how often something happens."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fsjoule.statistics.spread import Proportion, Spread, p_not_above, spread_of


def test_a_spread_is_of_the_figures_that_are_there() -> None:
    assert spread_of([1.0, None, 3.0]) == Spread(2, 2.0, statistics.stdev([1.0, 3.0]))
    assert spread_of([None, 4.0]) == Spread(1, 4.0, None)
    assert spread_of([None]) is None
    assert spread_of([]) is None


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9),
    st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9),
)
def test_means_are_told_apart_as_by_welch_with_whole_degrees(one: list[float], other: list[float]) -> None:
    first, second = spread_of(one), spread_of(other)
    assert first is not None
    assert second is not None
    p = p_not_above(first, second)
    assert p is not None
    assert 0 <= p <= 1
    squares = [s.sd**2 / s.n for s in (first, second) if s.sd is not None]
    if sum(squares) < 1e-9:
        return
    t = (first.mean - second.mean) / sum(squares) ** 0.5
    degrees = sum(squares) ** 2 / (squares[0] ** 2 / (first.n - 1) + squares[1] ** 2 / (second.n - 1))
    expected = float(stats.t.sf(t, max(1, int(degrees + 1e-9))))
    assert p == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_figures_without_noise_are_told_apart_by_any_difference() -> None:
    low, high = Spread(3, 1.0, 0.0), Spread(3, 1.001, 0.0)
    assert (p_not_above(high, low), p_not_above(low, high), p_not_above(low, low)) == (0.0, 1.0, 1.0)


def test_a_single_figure_tells_no_probability() -> None:
    assert p_not_above(Spread(1, 2.0, None), Spread(3, 1.0, 0.1)) is None


@pytest.mark.parametrize(("count", "n"), [(0, 226), (3, 50), (226, 226), (0, 1), (1, 1), (7, 15)])
def test_the_interval_is_that_of_clopper_and_pearson(count: int, n: int) -> None:
    low, high = Proportion(count, n).interval()
    expected = stats.binomtest(count, n).proportion_ci(0.95, method="exact")
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert low <= Proportion(count, n).share <= high
