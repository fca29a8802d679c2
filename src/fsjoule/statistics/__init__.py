"""Verdicts from repetitions: pure functions, without I/O. docs/statistics.md explains them.

`compare` judges two finished samples, `SequentialTest` and `Gate` decide while boots still run, `nominate` and
`confirm` find changes in a history. The unit of all of them is the boot.
"""

from __future__ import annotations

from fsjoule.statistics.changepoints import (
    ChangePointFinder,
    Confirmation,
    Confirmed,
    Nomination,
    Nominations,
    confirm,
    confirming_test,
    nominate,
)
from fsjoule.statistics.comparing import Comparison, Criteria, Outcome, Verdict, compare
from fsjoule.statistics.evidence import History
from fsjoule.statistics.figures import one_per_boot
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.gate import Decision, Gate, GateState, Rates, SequentialTest, State
from fsjoule.statistics.order import Side, interleaved
from fsjoule.statistics.policy import Policy, parse_policy
from fsjoule.statistics.ranks import detectable, rank_test, relative_noise
from fsjoule.statistics.ratios import Interval, Ratio, ratio_of_medians

__all__ = [
    "ChangePointFinder",
    "Comparison",
    "Confirmation",
    "Confirmed",
    "Criteria",
    "Decision",
    "Gate",
    "GateState",
    "History",
    "Interval",
    "Nomination",
    "Nominations",
    "Outcome",
    "Policy",
    "Rates",
    "Ratio",
    "RupturesFinder",
    "SequentialTest",
    "Side",
    "State",
    "Verdict",
    "compare",
    "confirm",
    "confirming_test",
    "detectable",
    "interleaved",
    "nominate",
    "one_per_boot",
    "parse_policy",
    "rank_test",
    "ratio_of_medians",
    "relative_noise",
]
