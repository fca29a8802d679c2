"""Verdicts from repetitions: pure functions, without I/O. docs/statistics.md explains them.

`compare` judges two finished samples, `SequentialTest` and `Gate` decide while boots still run, `nominate` and
`confirm` find changes in a history. The unit of all of them is the boot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsjoule.lazily import lazily

if TYPE_CHECKING:
    from fsjoule.statistics.changepoints import ChangePointFinder, Nomination, Nominations, nominate
    from fsjoule.statistics.comparing import Comparison, Criteria, Outcome, Verdict, compare
    from fsjoule.statistics.confirming import Confirmation, Confirmed, confirm, confirming_test
    from fsjoule.statistics.evidence import History
    from fsjoule.statistics.figures import one_per_boot
    from fsjoule.statistics.finder import RupturesFinder
    from fsjoule.statistics.gate import Decision, Gate, GateState, Rates, SequentialTest, State
    from fsjoule.statistics.order import Side, interleaved
    from fsjoule.statistics.policy import Policy, parse_policy
    from fsjoule.statistics.proportions import clopper_pearson
    from fsjoule.statistics.ranks import detectable, rank_test, relative_noise
    from fsjoule.statistics.ratios import Interval, Ratio, ratio_of_medians
else:
    __getattr__ = lazily(
        __name__,
        {
            "changepoints": "ChangePointFinder Nomination Nominations nominate",
            "comparing": "Comparison Criteria Outcome Verdict compare",
            "confirming": "Confirmation Confirmed confirm confirming_test",
            "evidence": "History",
            "figures": "one_per_boot",
            "finder": "RupturesFinder",
            "gate": "Decision Gate GateState Rates SequentialTest State",
            "order": "Side interleaved",
            "policy": "Policy parse_policy",
            "proportions": "clopper_pearson",
            "ranks": "detectable rank_test relative_noise",
            "ratios": "Interval Ratio ratio_of_medians",
        },
    )

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
    "clopper_pearson",
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
