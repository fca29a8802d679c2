#!/usr/bin/env python3
"""Whether the minimum detectable effect is what it says: the rank test's power when exactly that effect is planted."""

from __future__ import annotations

import numpy as np
from output import Report, arguments
from scipy import stats
from simulation import Scenario, boots

from fsjoule.statistics.comparison import detectable, least_p, relative_noise
from fsjoule.statistics.outcome import Criteria


def main() -> None:
    options = arguments(str(__doc__), trials=5000).parse_args()
    criteria = Criteria()
    settings = {"power asked %": 100 * criteria.power, "trials": options.trials, "seed": options.seed}
    report = Report("Power at the minimum detectable effect", settings)
    for alpha in (criteria.alpha, criteria.false_discoveries / 80):
        for n in (6, 8, 10, 15, 20):
            for stalls in (0.0, 0.05):
                if least_p(n, n) <= alpha:
                    rng = np.random.default_rng(options.seed)
                    sides = boots(rng, Scenario(stalls=stalls), (2, options.trials, n))
                    report.rows.append(_row(sides[0], sides[1], alpha, criteria.power, stalls))
    report.show(as_json=options.json)


def _row(
    baseline: np.typing.NDArray[np.float64],
    candidate: np.typing.NDArray[np.float64],
    alpha: float,
    power: float,
    stalls: float,
) -> dict[str, float]:
    n = baseline.shape[1]
    known = detectable(Scenario().noise, n, n, alpha=alpha, power=power)
    p = stats.mannwhitneyu(baseline, candidate + np.log1p(-known), axis=1, method="exact").pvalue
    estimated = [relative_noise(np.exp(a), np.exp(b)) or 0.0 for a, b in zip(baseline, candidate, strict=True)]
    return {
        "alpha": alpha,
        "n": n,
        "stalls %": 100 * stalls,
        "effect %": round(100 * known, 2),
        "found %": round(100 * float(np.mean(p <= alpha)), 1),
        "noise estimated % (median)": round(100 * float(np.median(estimated)), 2),
    }


if __name__ == "__main__":
    main()
