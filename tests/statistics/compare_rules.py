#!/usr/bin/env python3
"""False regressions and power of the gate, of `compare` and of three other rules, over the same simulated boots."""

from __future__ import annotations

import argparse

import numpy as np
from output import Report, Share, arguments
from rules import Rule, gate, otava, threshold, verdict, welch
from simulation import Scenario, trials

from fsjoule.statistics.gate import ErrorRates

# Boots a side for the rules that fix their number: as many as the gate takes on average, and more.
_FEW, _MANY = 6, 10
_BUDGET_PAIRS = 20


def rules(loss: float, scenario: Scenario) -> dict[str, Rule]:
    """The rules that can judge the boots of that scenario."""
    others = {
        f"{name}, {each} + {each}": rule
        for each in ((_MANY,) if scenario.one_after_the_other else (_FEW, _MANY))
        for name, rule in (
            ("compare", verdict(each)),
            (f"means differ by {loss:.0%}", threshold(each, loss)),
            ("Welch, alpha .01", welch(each)),
            ("Otava", otava(each)),
        )
    }
    if scenario.one_after_the_other:
        return others  # the gate never runs that way
    return {"gate": gate(ErrorRates(smallest_effect=loss, budget_pairs=_BUDGET_PAIRS)), **others}


def scenarios(noise: float) -> dict[str, Scenario]:
    return {
        "plain": Scenario(noise),
        "5 % stalls": Scenario(noise, stalls=0.05),
        "drift": Scenario(noise, drift="linear"),
        "walk": Scenario(noise, drift="walk"),
        "drift, not interleaved": Scenario(noise, drift="linear", one_after_the_other=True),
    }


def main() -> None:
    options = parser().parse_args()
    settings = {"noise": options.noise, "loss": options.loss, "trials": options.trials, "seed": options.seed}
    report = Report("False regressions without a loss, regressions found with one", settings)
    for title, scenario in scenarios(options.noise).items():
        rng = np.random.default_rng(options.seed)
        pairs = _MANY if scenario.one_after_the_other else _BUDGET_PAIRS
        null = trials(rng, scenario, options.trials, pairs)
        lossy = trials(rng, scenario, options.trials, pairs, loss=options.loss)
        for name, rule in rules(options.loss, scenario).items():
            without, with_loss = rule(*null), rule(*lossy)
            report.rows.append(
                {
                    "boots": title,
                    "rule": name,
                    **Share(int(without.regressed.sum()), options.trials).cells("false"),
                    "boots without a loss": round(float(without.boots.mean()), 2),
                    "found %": round(100 * float(with_loss.regressed.mean()), 2),
                    "missed %": round(100 * float(with_loss.not_regressed.mean()), 2),
                    "boots with a loss": round(float(with_loss.boots.mean()), 2),
                }
            )
    report.show(as_json=options.json)


def parser() -> argparse.ArgumentParser:
    found = arguments(str(__doc__), trials=2000)
    found.add_argument("--noise", type=float, default=0.02, help="relative standard deviation of a boot")
    found.add_argument("--loss", type=float, default=0.05, help="the planted loss, and the smallest that matters")
    return found


if __name__ == "__main__":
    main()
