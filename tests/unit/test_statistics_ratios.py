from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from simulation import PLAIN, STALLS, Scenario, boots

from fsjoule.statistics.ratios import ratio_of_medians

SAMPLES = st.lists(st.floats(0.1, 1000), min_size=1, max_size=12)


def ratio(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], axis: int) -> npt.NDArray[np.float64]:
    return np.median(b, axis=axis) / np.median(a, axis=axis)


def test_the_interval_is_scipys_percentile_bootstrap() -> None:
    rng = np.random.default_rng(7)
    # Odd sizes, so that a median is one of the figures and logarithms commute with it.
    baseline, candidate = rng.lognormal(3, 0.05, 21), rng.lognormal(3.1, 0.05, 15)
    ours = ratio_of_medians(baseline, candidate, resamples=20_000)
    scipys = stats.bootstrap(
        (baseline, candidate),
        ratio,
        n_resamples=20_000,
        method="percentile",
        rng=rng,
    ).confidence_interval
    assert ours.value == pytest.approx(np.median(candidate) / np.median(baseline))
    assert ours.interval.low == pytest.approx(scipys.low, rel=2e-3)
    assert ours.interval.high == pytest.approx(scipys.high, rel=2e-3)


@given(SAMPLES, SAMPLES)
def test_swapping_the_samples_inverts_the_ratio(a: list[float], b: list[float]) -> None:
    there = ratio_of_medians(np.array(a), np.array(b), resamples=200)
    back = ratio_of_medians(np.array(b), np.array(a), resamples=200)
    assert back.value == pytest.approx(1 / there.value)
    assert back.interval.low == pytest.approx(1 / there.interval.high)
    assert back.interval.high == pytest.approx(1 / there.interval.low)


@given(SAMPLES, SAMPLES, st.integers(-20, 20))
def test_unit_and_order_do_not_matter(a: list[float], b: list[float], power: int) -> None:
    there = ratio_of_medians(np.array(a), np.array(b), resamples=200)
    scaled = ratio_of_medians(np.array(a[::-1]) * 2.0**power, np.array(b[::-1]) * 2.0**power, resamples=200)
    assert scaled.value == pytest.approx(there.value)
    assert scaled.interval.low == pytest.approx(there.interval.low)
    assert scaled.interval.high == pytest.approx(there.interval.high)


@given(SAMPLES, SAMPLES)
def test_the_interval_lies_among_ratios_that_were_seen(a: list[float], b: list[float]) -> None:
    interval = ratio_of_medians(np.array(a), np.array(b), resamples=200).interval
    assert min(b) / max(a) * (1 - 1e-9) <= interval.low <= interval.high <= max(b) / min(a) * (1 + 1e-9)


def test_the_seed_decides() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.lognormal(0, 0.1, 9), rng.lognormal(0, 0.1, 9)
    assert ratio_of_medians(a, b, seed=1) == ratio_of_medians(a, b, seed=1)
    few = [ratio_of_medians(a, b, seed=seed, resamples=40).interval for seed in (1, 2)]
    assert few[0] != few[1]


@pytest.mark.parametrize("scenario", [PLAIN, STALLS])
@pytest.mark.parametrize("n", [6, 10])
def test_the_interval_holds_the_ratio_as_often_as_it_says(n: int, scenario: Scenario) -> None:
    logs = boots(np.random.default_rng(11), scenario, (600, 2, n))
    held = [
        ratio_of_medians(np.exp(a), np.exp(b) * 0.9, seed=number, resamples=400).interval.holds(0.9)
        for number, (a, b) in enumerate(logs)
    ]
    # 95 % promised; 600 draws have a standard error of 0.9 %.
    assert 0.925 <= float(np.mean(held)) <= 0.99


@pytest.mark.parametrize(("a", "b"), [([], [1.0]), ([1.0], [])])
def test_no_figures_no_ratio(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one figure"):
        ratio_of_medians(np.array(a), np.array(b))
