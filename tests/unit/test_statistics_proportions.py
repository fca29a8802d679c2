"""The interval on a rate: against published values, its definition, and how often it covers."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from fsjoule.errors import ConfigError
from fsjoule.statistics.spread import clopper_pearson


@pytest.mark.parametrize(
    ("failures", "n", "expected"),
    [
        (0, 10, (0.0, 0.3085)),  # Brown, Cai, DasGupta: Statistical Science 16, 2001, and any table
        (1, 10, (0.0025, 0.4450)),
        (5, 10, (0.1871, 0.8129)),
        (10, 10, (0.6915, 1.0)),
        (0, 0, (0.0, 1.0)),
    ],
)
def test_values_of_tables(failures: int, n: int, expected: tuple[float, float]) -> None:
    assert clopper_pearson(failures, n) == pytest.approx(expected, abs=5e-5)


def test_the_rule_of_three() -> None:
    assert clopper_pearson(0, 226, 0.90)[1] == pytest.approx(3 / 226, rel=0.01)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.4, 0.97])
@pytest.mark.parametrize("n", [5, 50, 226])
def test_it_covers_the_rate_at_least_as_often_as_it_says(rate: float, n: int) -> None:
    covered = 0.0
    for failures in range(n + 1):
        low, high = clopper_pearson(failures, n)
        if low <= rate <= high:
            covered += float(binom.pmf(failures, n, rate))
    assert covered >= 0.95


@pytest.mark.parametrize(("failures", "n"), [(-1, 3), (4, 3), (0, -1)])
def test_impossible_counts_are_refused(failures: int, n: int) -> None:
    with pytest.raises(ConfigError, match="trials"):
        clopper_pearson(failures, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        clopper_pearson(0, 3, confidence)
