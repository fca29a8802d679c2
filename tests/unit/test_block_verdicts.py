"""Whether blocks of tests keep their budgets and levels."""

from __future__ import annotations

import pytest

from fsjoule.errors import ConfigError
from fsjoule.runs.blocks import lowest_level
from fsjoule.statistics.level import LevelRule, against_boots, against_budget
from fsjoule.statistics.outcome import Outcome
from fsjoule.verdicts.blocks import BlockLimits, judge_block

HISTORY = [1000.0, 1004.0, 998.0, 1001.0, 995.0]
BUDGET = BlockLimits.read({"budget": "1.2 J"})
EFFECT = BlockLimits.read({"effect": "5 %"})


@pytest.mark.parametrize(
    ("energies", "outcome", "more"),
    [
        ([900.0], Outcome.NOT_REGRESSED, False),
        ([1150.0] * 5, Outcome.NOT_REGRESSED, False),
        ([1190.0] * 9, Outcome.UNDECIDED, True),
        ([1190.0] * 10, Outcome.UNDECIDED, False),
        ([1400.0], Outcome.UNDECIDED, True),  # what fails is measured twice
        ([1400.0] * 2, Outcome.REGRESSED, False),
        ([60_000.0, 34_000.0], Outcome.REGRESSED, False),
        ([], Outcome.UNDECIDED, True),
    ],
)
def test_a_budget(energies: list[float], outcome: Outcome, more: bool) -> None:
    found = judge_block([(1, each) for each in energies], len(energies), 0.005, BUDGET)
    assert (found.outcome, found.more) == (outcome, more), found.text


def test_a_budget_within_the_meters_own_error_stays_open() -> None:
    assert judge_block([(1, 1150.0)] * 10, 10, 0.05, BUDGET).outcome is Outcome.UNDECIDED
    assert judge_block([(1, 1250.0)] * 10, 10, 0.05, BUDGET).outcome is Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("energies", "outcome"),
    [
        ([1000.0], Outcome.NOT_REGRESSED),
        ([950.0], Outcome.NOT_REGRESSED),
        ([1050.0], Outcome.UNDECIDED),
        ([1050.0, 1051.0], Outcome.REGRESSED),
        ([1010.0] * 2, Outcome.NOT_REGRESSED),
        ([1300.0, 1000.0, 1001.0], Outcome.NOT_REGRESSED),  # one stalled
    ],
)
def test_a_level(energies: list[float], outcome: Outcome) -> None:
    rows = [(1, each) for each in energies]
    assert judge_block(rows, len(rows), 0.005, EFFECT, history=HISTORY, runs=5).outcome is outcome


def test_a_stall_in_the_history_costs_no_answer() -> None:
    rule = LevelRule(0.05)
    assert against_boots([*HISTORY, 1400.0], [1001.0], rule).outcome is Outcome.NOT_REGRESSED
    assert against_boots([*HISTORY, 1400.0], [1051.0], rule).outcome is Outcome.REGRESSED


@pytest.mark.parametrize(("later", "level"), [(110.0, 100.0), (90.0, 90.0), (100.0, 100.0)])
def test_runs_that_failed_make_no_level_and_better_ones_do(later: float, level: float) -> None:
    noise = [0.3, -0.2, 0.1, -0.3, 0.2, 0.0, -0.1, 0.25, -0.15, 0.05, 0.15, -0.25]
    runs = [(100 + each,) for each in noise] + [(later + each,) for each in noise]
    chosen = lowest_level(runs)
    assert {round(figure) for (figure,) in chosen} == {level}
    assert len(chosen) == (24 if later == level == 100 else 12)
    assert not lowest_level([])


def test_a_short_history_decides_nothing() -> None:
    found = judge_block([(1, 1500.0)], 1, 0.005, EFFECT, history=HISTORY[:2], runs=2)
    assert (found.outcome, found.more) == (Outcome.UNDECIDED, False)
    assert "has a history of 2 runs, and 3 are needed" in found.text


def test_both_questions_must_be_answered() -> None:
    both = BlockLimits.read({"budget": "1.2 J", "effect": "5 %"})
    kept = judge_block([(1, 1000.0)], 1, 0.005, both, history=HISTORY, runs=5)
    assert kept.outcome is Outcome.NOT_REGRESSED
    grown = judge_block([(1, 1060.0)] * 2, 2, 0.005, both, history=HISTORY, runs=5)
    assert grown.outcome is Outcome.REGRESSED
    assert "keeps its budget" in grown.text
    assert "uses more energy: +6.0 %" in grown.text


def test_the_level_is_exact_or_of_boots() -> None:
    found = against_budget([1300.0, 1301.0], 1200.0, LevelRule(0.01, least_noise=0.01))
    assert found.outcome is Outcome.REGRESSED
    assert found.ratio == pytest.approx(1.0838, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"budget": "1.2"}, r"joules\(budget='1.2'\) is not an energy"),
        ({"budget": "-1 J"}, "is not an energy"),
        ({"budget": "0 J"}, "is not an energy"),
        ({"budget": 1.2}, "is not an energy"),
        ({"effect": "5"}, "is not a share"),
        ({"effect": "500 %"}, "is not a share"),
        ({}, "neither a budget nor an effect"),
        ({"limit": "1 J"}, "unknown argument of the marker joules 'limit'"),
        ({"budget": "1 J", "most": 0}, "is not a number of repetitions"),
        ({"budget": "1 J", "most": True}, "is not a number of repetitions"),
    ],
)
def test_wrong_words_are_named(words: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        BlockLimits.read(words)


@pytest.mark.parametrize(("text", "mj"), [("1.2 J", 1200.0), ("300mJ", 300.0), ("1e3 uJ", 1.0), ("1 mWh", 3600.0)])
def test_energies_have_their_unit(text: str, mj: float) -> None:
    assert BlockLimits.read({"budget": text}).budget_mj == pytest.approx(mj)
