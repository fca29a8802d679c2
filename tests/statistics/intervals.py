#!/usr/bin/env python3
"""How often bootstrap intervals for a ratio hold it, by statistic and method: why medians and plain percentiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
from output import Report, arguments
from scipy import stats
from simulation import PLAIN, STALLS, boots

from fsjoule.statistics.ratios import CONFIDENCE

Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
Bounds = tuple[float, float]

_RESAMPLES: Final = 1000
_TAIL: Final = (1 - CONFIDENCE) / 2

# Of logarithms of figures, along the last axis; what is compared is the difference, the logarithm of the ratio.
STATISTICS: Final[dict[str, Statistic]] = {
    "means": lambda logs: np.log(np.exp(logs).mean(axis=-1)),
    "medians": lambda logs: np.median(logs, axis=-1),
}


def percentile(drawn: Floats, baseline: Floats, candidate: Floats, statistic: Statistic) -> Bounds:
    del baseline, candidate, statistic
    low, high = np.quantile(drawn, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


def expanded(drawn: Floats, baseline: Floats, candidate: Floats, statistic: Statistic) -> Bounds:
    """Hesterberg, What teachers should know about the bootstrap, 2015, section 5.2: as wide as a t interval."""
    del statistic
    n = len(baseline) + len(candidate)
    tail = float(stats.norm.cdf(np.sqrt(n / (n - 2)) * stats.t.ppf(_TAIL, n - 2)))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def bca(drawn: Floats, baseline: Floats, candidate: Floats, statistic: Statistic) -> Bounds:
    """Efron, Tibshirani: An Introduction to the Bootstrap, 1993, section 14.3; for two samples as scipy has it."""
    observed = statistic(candidate) - statistic(baseline)
    below = float(np.mean(drawn < observed) + np.mean(drawn == observed) / 2)
    bias = float(stats.norm.ppf(np.clip(below, 1 / len(drawn), 1 - 1 / len(drawn))))
    without = [np.array([statistic(np.delete(side, i)) for i in range(len(side))]) for side in (baseline, candidate)]
    signs = (-1.0, 1.0)
    pull = np.concatenate([s * (w.mean() - w) / len(w) for s, w in zip(signs, without, strict=True)])
    spread = float(np.square(pull).sum()) ** 1.5
    acceleration = float((pull**3).sum()) / (6 * spread) if spread else 0.0
    z = bias + stats.norm.ppf([_TAIL, 1 - _TAIL])
    low, high = np.quantile(drawn, stats.norm.cdf(bias + z / (1 - acceleration * z)))
    return float(low), float(high)


METHODS: Final = {"percentile": percentile, "expanded": expanded, "BCa": bca}


def resample(rng: np.random.Generator, sample: Floats) -> Floats:
    return rng.choice(sample, size=(_RESAMPLES, len(sample)))


def main() -> None:
    options = arguments(str(__doc__), trials=1000).parse_args()
    report = Report(f"Coverage of {CONFIDENCE:.0%} intervals", {"trials": options.trials, "seed": options.seed})
    for n in (5, 6, 8, 10, 20):
        for title, scenario in (("plain", PLAIN), ("5 % stalls", STALLS)):
            for name, statistic in STATISTICS.items():
                rng = np.random.default_rng(options.seed)
                found: dict[str, list[Bounds]] = {method: [] for method in METHODS}
                for _ in range(options.trials):
                    sides = boots(rng, scenario, (2, n))
                    drawn = statistic(resample(rng, sides[1])) - statistic(resample(rng, sides[0]))
                    for method, bounds in METHODS.items():
                        found[method].append(bounds(drawn, sides[0], sides[1], statistic))
                report.rows.append({"n": n, "boots": title, "ratio of": name, **_cells(found)})
    report.show(as_json=options.json)


def _cells(found: dict[str, list[Bounds]]) -> dict[str, float]:
    cells: dict[str, float] = {}
    for method, bounds in found.items():
        low, high = np.array(bounds).T
        cells[f"{method} holds %"] = round(100 * float(np.mean((low <= 0) & (high >= 0))), 1)
        cells[f"{method} width %"] = round(100 * float(np.median(high - low)), 2)
    return cells


if __name__ == "__main__":
    main()
