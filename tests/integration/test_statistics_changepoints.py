from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from simulation import PLAIN, STALLS, Scenario, boots
from staircases import SHAPES, matched, staircase

from fsjoule.statistics import finder as module
from fsjoule.statistics.changepoints import ChangePointFinder, Nomination, nominate
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.gate import ErrorRates, SequentialState, confirming_test, outcome_of
from fsjoule.statistics.outcome import Confirmed

Floats = npt.NDArray[np.float64]
RATES = ErrorRates(smallest_effect=0.05)


class Fixed:
    """A detector that always says the same, and keeps what it was asked."""

    def __init__(self, *starts: int) -> None:
        self.starts = starts
        self.asked: Floats = np.array([])

    def find(self, values: Floats, level: int = 7) -> tuple[int, ...]:  # noqa: ARG002 - of the port
        self.asked = values
        return self.starts


def stepped(scenario: Scenario, steps: dict[int, float], seed: int = 1, points: int = 60) -> tuple[float, ...]:
    values = boots(np.random.default_rng(seed), scenario, (points,))
    for start, factor in steps.items():
        values[start:] += math.log(factor)
    return tuple(np.exp(values).tolist())


@pytest.mark.parametrize("scenario", [PLAIN, STALLS])
def test_steps_are_found_where_they_are(scenario: Scenario) -> None:
    found = nominate(stepped(scenario, {20: 0.9, 40: 1.15}), RupturesFinder()).nominations
    assert len(found) == 2
    for nomination, start, factor in zip(found, (20, 40), (0.9, 1.15), strict=True):
        assert abs(nomination.index - start) <= 1
        assert nomination.ratio == pytest.approx(factor, rel=0.03)
        assert nomination.before < start <= nomination.after


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if "," in shape or "of" in shape])
@pytest.mark.parametrize("noise", ["0.0%", "0.0%, 5 % stalls", "0.1%, 5 % stalls", "1.0%"])
def test_each_step_of_a_staircase_is_found(shape: str, noise: str) -> None:
    steps = found = others = 0
    for values, starts in staircase(shape, noise, 2, seed=4):
        places = RupturesFinder().find(values)
        hits = matched(places, starts)
        steps, found, others = steps + len(starts), found + hits, others + len(places) - hits
    assert found >= 0.9 * steps
    assert others == 0


@pytest.mark.parametrize("slope", [0.003, 0.01, 0.03])
@pytest.mark.parametrize("scenario", [PLAIN, STALLS])
def test_a_drift_is_told_however_steep(slope: float, scenario: Scenario) -> None:
    for values in boots(np.random.default_rng(3), scenario, (2, 100)):
        told = nominate(tuple(np.exp(values - slope * np.arange(100)).tolist()), RupturesFinder())
        assert told.nominations == ()
        assert told.memory is not None
        assert told.memory.drift == pytest.approx(math.exp(-99 * slope), rel=0.05)


def test_a_drift_does_not_move_the_night_of_a_step() -> None:
    night = np.arange(100)
    drawn = boots(np.random.default_rng(6), PLAIN, (12, 100)) - 0.003 * night + math.log(0.8) * (night >= 60)
    assert sum(any(abs(start - 60) <= 1 for start in RupturesFinder().find(values)) for values in drawn) >= 11


def test_a_series_without_a_change_seldom_gets_one() -> None:
    rng = np.random.default_rng(2)
    for scenario in (PLAIN, STALLS):
        alarms = sum(bool(RupturesFinder().find(values)) for values in boots(rng, scenario, (200, 100)))
        assert alarms <= 4


@given(st.floats(0.01, 100), st.integers(0, 30))
def test_neither_unit_nor_noise_level_decides(factor: float, seed: int) -> None:
    figures = stepped(PLAIN, {30: 0.93}, seed)
    scaled = tuple(factor * figure for figure in figures)
    finder = RupturesFinder()
    assert [n.index for n in nominate(figures, finder).nominations] == [
        n.index for n in nominate(scaled, finder).nominations
    ]


@pytest.mark.parametrize("count", range(7))
def test_short_series_have_no_change(count: int) -> None:
    assert RupturesFinder().find(np.array([0.0, 0.001, 0.0, 1.0, 1.001, 1.0, 1.002])[:count]) == ()


def test_constant_series_have_no_change_and_calm_ones_may() -> None:
    assert RupturesFinder().find(np.zeros(50)) == ()
    # Ties, as a deterministic board has them: most points equal their neighbours.
    assert RupturesFinder().find(np.repeat([0.0, 0.01, 0.0], [20, 20, 20])) == (20, 40)


@pytest.mark.parametrize("seed", range(20))
def test_levels_are_told_apart_by_students_test(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = rng.normal(0, 1.5, rng.integers(3, 20)), rng.normal(1, 1.5, rng.integers(3, 20))
    assert module._p(before, after) == pytest.approx(float(stats.ttest_ind(before, after).pvalue))


def test_levels_that_are_calm_by_chance_are_not_told_apart() -> None:
    calm = np.array([0.0, 0.01, -0.01])
    assert float(stats.ttest_ind(calm, calm + 0.3).pvalue) < 1e-4
    assert module._p(calm, calm + 0.3) > 0.1


def test_what_is_no_figure_is_named_and_indexes_stay_those_of_the_series() -> None:
    figures = [1.0, None, 1.1, math.nan, 0.9, 0.0, 2.0, 2.1, math.inf, 1.9]
    detector: ChangePointFinder = Fixed(3)
    found = nominate(figures, detector)
    assert found.left_out == ("point 1: missing", "point 3: not a number", "point 5: zero", "point 8: infinite")
    (nomination,) = found.nominations
    assert (nomination.index, nomination.before, nomination.after) == (6, 0, 9)
    assert nomination.ratio == pytest.approx(2.0)


def test_the_points_to_run_anew_stay_within_their_levels() -> None:
    found = nominate([1.0] * 4 + [2.0] * 2 + [3.0] * 9, Fixed(4, 6)).nominations
    assert [(n.before, n.after) for n in found] == [(1, 5), (4, 8)]


def test_nothing_usable_nominates_nothing() -> None:
    assert nominate([None, math.nan], Fixed(1)).nominations == ()


def pairs(ratio: float, count: int = 12) -> list[tuple[float | None, float | None]]:
    rng = np.random.default_rng(5)
    return [(float(a), float(b * ratio)) for a, b in np.exp(rng.normal(0, 0.01, (count, 2)))]


def confirm(nomination: Nomination, fresh: list[tuple[float | None, float | None]]) -> SequentialState:
    test = confirming_test(nomination, RATES)
    return [test.add(*pair) for pair in fresh][-1]


@pytest.mark.parametrize(
    ("nominated", "fresh", "outcome"),
    [
        (0.93, 0.93, Confirmed.CONFIRMED),
        (1.08, 1.08, Confirmed.CONFIRMED),
        (0.93, 1.0, Confirmed.REFUTED),
        (1.08, 1.0, Confirmed.REFUTED),
        (0.93, 1.08, Confirmed.REFUTED),
        (1.08, 0.93, Confirmed.REFUTED),
    ],
)
def test_fresh_boots_confirm_or_refute(nominated: float, fresh: float, outcome: Confirmed) -> None:
    state = confirm(Nomination(5, 2, 7, nominated), pairs(fresh))
    assert outcome_of(state) is outcome
    assert state.pairs < 12


def test_too_few_fresh_boots_confirm_nothing() -> None:
    state = confirm(Nomination(5, 2, 7, 0.93), [*pairs(0.93, 2), (None, 1.0)])
    assert outcome_of(state) is Confirmed.UNDECIDED
    assert state.unusable == ("baseline 3: missing",)
