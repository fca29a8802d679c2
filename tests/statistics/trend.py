#!/usr/bin/env python3
"""False alarms of `trend` over series without a change: each nomination is confirmed by fresh interleaved boots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from change_points import FIRST_ASKED, NEAR, POINTS, STEP
from output import Report, arguments
from simulation import Scenario, boots, trials

from fsjoule.statistics.changepoints import Nomination, nominate
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.gate import ErrorRates, confirming_test, outcome_of
from fsjoule.statistics.outcome import Confirmed

Floats = npt.NDArray[np.float64]


FreshBoots = Callable[[Nomination], list[tuple[float, float]]]


@dataclass
class Tally:
    """Counts over all series. A series-run is one series asked once, after one more point."""

    series_runs: int = 0
    nominated: int = 0
    confirmed: int = 0
    undecided: int = 0
    fresh_boots: int = 0


def follow(values: Floats, fresh: FreshBoots, rates: ErrorRates, tally: Tally) -> None:
    """One series, point by point. A change point is run anew once, unless it moves by three points or more."""
    finder = RupturesFinder()
    known: list[int] = []
    figures = tuple(np.exp(values).tolist())
    for count in range(FIRST_ASKED, len(values) + 1):
        tally.series_runs += 1
        for nomination in nominate(figures[:count], finder).nominations:
            if any(abs(nomination.index - place) < NEAR for place in known):
                continue
            known.append(nomination.index)
            test = confirming_test(nomination, rates)
            state = [test.add(*pair) for pair in fresh(nomination)][-1]
            tally.nominated += 1
            tally.confirmed += outcome_of(state) is Confirmed.CONFIRMED
            tally.undecided += outcome_of(state) is Confirmed.UNDECIDED
            tally.fresh_boots += 2 * state.pairs


def fresh_boots(rng: np.random.Generator, scenario: Scenario, pairs: int, loss: float) -> FreshBoots:
    """Boots of a nomination's two points: they differ by the loss if the step lies between them."""

    def run(nomination: Nomination) -> list[tuple[float, float]]:
        between = nomination.before < STEP <= nomination.after
        before, after = trials(rng, scenario, 1, pairs, loss=loss if between else 0.0)
        return list(zip(np.exp(before[0]).tolist(), np.exp(after[0]).tolist(), strict=True))

    return run


def main() -> None:
    parser = arguments(str(__doc__), trials=1000)
    parser.add_argument("--noise", type=float, default=0.02, help="relative standard deviation of a boot")
    options = parser.parse_args()
    settings = {"points": POINTS, "noise": options.noise, "series": options.trials, "seed": options.seed}
    report = Report("Trend: nominated, then confirmed by fresh boots", settings)
    rates = ErrorRates(smallest_effect=0.05)
    for title, scenario, loss in (
        ("no change", Scenario(options.noise), 0.0),
        ("no change, 5 % stalls", Scenario(options.noise, stalls=0.05), 0.0),
        ("no change, points walk 0.3 %", Scenario(options.noise, drift="walk"), 0.0),
        ("5 % lost at point 60", Scenario(options.noise), 0.05),
        ("5 % lost at point 60, 5 % stalls", Scenario(options.noise, stalls=0.05), 0.05),
    ):
        tally = Tally()
        rng = np.random.default_rng(options.seed)
        for values in histories(rng, scenario, options.trials, loss):
            follow(values, fresh_boots(rng, scenario, rates.budget_pairs, loss), rates, tally)
        report.rows.append(row(title, tally, options.trials))
    report.show(as_json=options.json)


def histories(rng: np.random.Generator, scenario: Scenario, count: int, loss: float) -> Floats:
    """Points of the history, shape (count, POINTS); they drift as boots do, and fall at the step."""
    values = boots(rng, scenario, (count, POINTS))
    if scenario.drift == "walk":
        values += np.cumsum(rng.normal(0.0, scenario.drift_size, values.shape), axis=1)
    values[:, STEP:] += np.log1p(-loss)
    return values


def row(title: str, tally: Tally, series: int) -> dict[str, str | int | float | None]:
    return {
        "history": title,
        "series": series,
        "series-runs": tally.series_runs,
        "nominated": tally.nominated,
        "confirmed": tally.confirmed,
        "undecided": tally.undecided,
        "confirmed per 1000 series-runs": round(1000 * tally.confirmed / tally.series_runs, 4),
        "fresh boots a series": round(tally.fresh_boots / series, 2),
    }


if __name__ == "__main__":
    main()
