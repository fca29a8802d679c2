#!/usr/bin/env python3
"""What the gate's sequential test gets wrong, and how many boots it takes, by noise, loss, stalls and history."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np
from output import Report, Share, arguments
from rules import Calls, gate
from simulation import Scenario, trials

from fsjoule.statistics.evidence import KnownNoise
from fsjoule.statistics.gate import ErrorRates


@dataclass(frozen=True, slots=True)
class Case:
    """One row: how boots behave, the loss that is planted, what is asked of the test, and what it is told."""

    boots: Scenario
    loss: float
    rates: ErrorRates
    history: KnownNoise | None = None


USUAL: Final = ErrorRates(smallest_effect=0.05)
# One of forty tests of a gate: the whole gate's alpha is split.
ONE_OF_FORTY: Final = replace(USUAL, alpha=USUAL.alpha / 40, budget_pairs=30)
# A deterministic board: two boots of each side, and a loss of 1 %.
TWO_BOOTS: Final = ErrorRates(smallest_effect=0.01, budget_pairs=2, least_pairs=2)

NOISES: Final = (0.005, 0.01, 0.02, 0.03, 0.04, 0.08)
STALLS: Final = (0.02, 0.05, 0.1, 0.2)
CALM: Final = (0.0005, 0.001, 0.002)
BOTH: Final = (0.0, 0.05)


def cases() -> list[Case]:
    return [
        *(Case(Scenario(noise), loss, USUAL) for noise, loss in product(NOISES, BOTH)),
        *(Case(Scenario(), loss, USUAL) for loss in (-0.2, -0.03, 0.02, 0.03, 0.04, 0.08, 0.2, 0.6)),
        *(Case(Scenario(stalls=stalls), loss, USUAL) for stalls, loss in product(STALLS, BOTH)),
        *(Case(Scenario(), loss, USUAL, KnownNoise(told, 30)) for told, loss in product((0.01, 0.02, 0.04), BOTH)),
        *(Case(Scenario(), loss, ONE_OF_FORTY) for loss in BOTH),
        *(Case(Scenario(noise), loss, TWO_BOOTS) for noise, loss in product(CALM, (0.0, 0.01))),
        *(Case(Scenario(noise), loss, TWO_BOOTS, KnownNoise(noise, 30)) for noise, loss in product(CALM, (0.0, 0.01))),
    ]


def row(case: Case, calls: Calls, count: int) -> dict[str, str | int | float | None]:
    return {
        "noise %": 100 * case.boots.noise,
        "stalls %": 100 * case.boots.stalls,
        "history says %": None if case.history is None else 100 * case.history.relative_sd,
        "alpha %": 100 * case.rates.alpha,
        "budget": 2 * case.rates.budget_pairs,
        "matters %": 100 * case.rates.smallest_effect,
        "loss %": round(100 * case.loss, 1),
        **Share(int(calls.regressed.sum()), count).cells("regressed"),
        "not regressed %": round(100 * float(calls.not_regressed.mean()), 2),
        "boots": round(float(calls.boots.mean()), 2),
    }


def main() -> None:
    options = arguments(str(__doc__), trials=1000).parse_args()
    report = Report("The gate's sequential test", {"trials": options.trials, "seed": options.seed})
    for case in cases():
        rng = np.random.default_rng(options.seed)
        both = trials(rng, case.boots, options.trials, case.rates.budget_pairs, loss=case.loss)
        report.rows.append(row(case, gate(case.rates, case.history)(*both), options.trials))
    report.show(as_json=options.json)


if __name__ == "__main__":
    main()
