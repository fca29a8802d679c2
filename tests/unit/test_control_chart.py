"""Control charts: their rate of false alarms, what they find, and the comparison of two levels."""

from __future__ import annotations

import numpy as np
import pytest

from fsjoule.statistics.control import (
    LEAST_CHECKS,
    Chart,
    Level,
    Rule,
    average_run_length,
    chart,
    level_of,
    limits_for,
    normalised_error,
)

LIMITS = limits_for(1)


def _checks(number: int, noise: float = 0.005, *, seed: int = 2) -> list[float]:
    return (2.5 * np.exp(np.random.default_rng(seed).normal(0, noise, number))).tolist()


def _charted(figures: list[float]) -> Chart:
    return chart(figures, LIMITS)


def test_each_rule_has_half_of_the_rate_of_false_alarms() -> None:
    limits = limits_for(4, 0.01)
    assert limits.single == pytest.approx(3.2272, abs=1e-4)  # of a normal, two-sided 1/800
    assert average_run_length(limits.average) == pytest.approx(800, rel=1e-3)


def test_the_mean_run_length_is_the_published_one() -> None:
    # Lucas and Saccucci 1990, table 3: weight 0.1, L = 2.814, no shift.
    assert average_run_length(2.814 * (0.1 / 1.9) ** 0.5) == pytest.approx(500, rel=0.01)


def test_false_alarms_are_as_frequent_as_stated() -> None:
    limits = limits_for(1, 0.01)
    checks = alarms = 0
    for seed in range(100):
        drawn = chart(_checks(400, seed=seed), limits)
        checks += drawn.alarm.signalled + 1 if drawn.alarm else 400
        alarms += len(drawn.alarms)
    # Some 200 alarms are expected; four standard deviations.
    assert alarms / checks == pytest.approx(0.01, rel=4 / 200**0.5)


def test_a_step_is_found_with_its_begin_and_its_size() -> None:
    figures = _checks(120)
    drawn = _charted([each * (1.01 if i >= 60 else 1.0) for i, each in enumerate(figures)])
    alarm = drawn.alarm
    assert alarm is not None
    assert alarm.rule is Rule.AVERAGE
    assert 60 <= alarm.signalled < 80
    assert abs(alarm.begin - 60) <= 2
    assert alarm.shift == pytest.approx(0.01, abs=0.004)


def test_the_chart_does_not_get_used_to_a_shift() -> None:
    drawn = _charted([each * (1.02 if i >= 40 else 1.0) for i, each in enumerate(_checks(400))])
    assert drawn.alarm is not None
    assert drawn.used <= drawn.alarm.signalled
    assert drawn.level == pytest.approx(2.5, rel=0.003)


def test_a_single_outlier_is_an_alarm_for_one_check() -> None:
    figures = _checks(100)
    figures[50] *= 1.2
    drawn = _charted(figures)
    assert drawn.alarm is None
    assert drawn.outliers == 1
    assert (drawn.alarms[0].rule, drawn.alarms[0].begin, drawn.alarms[0].end) == (Rule.LIMIT, 50, 51)
    assert drawn.used == 99
    assert chart(figures[:51], LIMITS).alarm is not None


def test_a_second_outlier_soon_lasts() -> None:
    figures = _checks(100)
    figures[50] *= 1.05
    figures[55] *= 0.9
    alarm = _charted(figures).alarm
    assert alarm is not None
    assert (alarm.rule, alarm.signalled, alarm.begin) == (Rule.JUMPS, 55, 50)
    assert alarm.shift == pytest.approx(-0.1, abs=0.02)


def test_jumps_to_one_side_are_no_step() -> None:
    figures = _checks(100)
    figures[50] *= 0.93
    figures[54] *= 0.95
    alarm = _charted(figures).alarm
    assert alarm is not None
    assert (alarm.rule, alarm.begin) == (Rule.JUMPS, 50)
    assert alarm.shift == pytest.approx(-0.07, abs=0.02)


def test_a_step_whose_first_checks_are_near_the_limit_is_no_jumps() -> None:
    figures = _checks(60, 0.001) + [2.5 * each for each in (1.006, 1.003, 1.006, 1.003, 1.006)]
    alarm = _charted(figures).alarm
    assert alarm is not None
    assert (alarm.rule, alarm.signalled, alarm.begin) == (Rule.LIMIT, 60, 60)
    assert alarm.shift == pytest.approx(0.0048, abs=0.0005)


def test_a_large_step_begins_at_its_first_check() -> None:
    drawn = _charted([each * (0.9 if i >= 30 else 1.0) for i, each in enumerate(_checks(60))])
    assert len(drawn.alarms) == 1
    assert drawn.alarm is not None
    assert (drawn.alarm.rule, drawn.alarm.signalled, drawn.alarm.begin) == (Rule.LIMIT, 30, 30)
    assert drawn.alarm.shift == pytest.approx(-0.1, abs=0.005)


def test_a_slow_drift_is_found() -> None:
    figures = [each * 1.01 ** (i / 365) for i, each in enumerate(_checks(730, 0.002))]
    alarm = _charted(figures).alarm
    assert alarm is not None
    assert alarm.signalled < 250


def test_few_checks_are_not_enough() -> None:
    assert not _charted(_checks(LEAST_CHECKS - 1)).enough
    assert _charted(_checks(LEAST_CHECKS)).enough
    assert np.isnan(_charted(_checks(1)).q).all()
    assert _charted([]).used == 0


def test_figures_without_noise_are_in_control() -> None:
    drawn = _charted([10.0] * 20)
    assert drawn.alarm is None
    assert _charted([10.0] * 20 + [10.05, 10.05]).alarm is not None


def test_a_level_has_the_meters_and_the_checks_uncertainty() -> None:
    drawn = _charted([2.0, 2.02, 1.98, 2.0])
    level = level_of(drawn, [0.01, 0.012, 0.011, 0.011])
    assert level.systematic == pytest.approx(0.011)
    assert level.random == pytest.approx(2.0 * 0.00816 / 2, rel=0.01)
    assert level.uncertainty == pytest.approx(np.hypot(level.systematic, level.random))


def test_the_normalised_error_of_two_levels() -> None:
    # By hand: a = 100.4, U = 0.6 and b = 100.0, U = 0.3 give 0.4 / sqrt(0.36 + 0.09).
    one, other = Level(100.4, 0.3, 0.0, 10), Level(100.0, 0.09, 0.12, 10)
    assert normalised_error(one, other) == pytest.approx(0.4 / 0.45**0.5)
    assert normalised_error(other, one) == pytest.approx(-0.4 / 0.45**0.5)
