#!/usr/bin/env python3
"""`compare` of a run on several boards: false changes, coverage and power, within boards and without knowing."""

from __future__ import annotations

import numpy as np
from output import Report, Share, arguments

from fsjoule.model.metrics import Metric
from fsjoule.statistics.comparison import Comparison, Verdict, compare
from fsjoule.statistics.outcome import Outcome

_LEVELS = (1.0, 1.2, 1.5)
_CHANGED = (Outcome.REGRESSED, Outcome.IMPROVED)


def verdict(rng: np.random.Generator, noise: float, pairs: int, loss: float, *, paired: bool) -> Verdict[str]:
    """The verdict on two kernels that were measured in blocks, by turns on three boards."""
    level = np.array(_LEVELS)[np.arange(pairs) % len(_LEVELS)]
    baseline, candidate = (level * rng.lognormal(0, noise, pairs) for _ in range(2))
    sides = tuple(baseline.tolist()), tuple(((1 - loss) * candidate).tolist())
    [found] = compare([Comparison("series", Metric.THROUGHPUT, *sides, paired)])
    return found


def main() -> None:
    parser = arguments(str(__doc__), trials=2000)
    parser.add_argument("--noise", type=float, default=0.01, help="relative standard deviation of a boot")
    parser.add_argument("--loss", type=float, default=0.025, help="the planted loss")
    parser.add_argument("--pairs", type=int, default=12, help="repetitions")
    options = parser.parse_args()
    settings = {name: getattr(options, name) for name in ("noise", "loss", "pairs", "trials", "seed")}
    report = Report("Two kernels on three boards whose levels differ by up to 50 %", settings)
    for paired in (True, False):
        rng = np.random.default_rng(options.seed)
        equal = [verdict(rng, options.noise, options.pairs, 0.0, paired=paired) for _ in range(options.trials)]
        lossy = [verdict(rng, options.noise, options.pairs, options.loss, paired=paired) for _ in range(options.trials)]
        held = sum(one.ratio is not None and one.ratio.interval.holds(1.0) for one in equal)
        report.rows.append(
            {
                "compared": "within boards" if paired else "without knowing of boards",
                **Share(sum(one.outcome in _CHANGED for one in equal), options.trials).cells("false"),
                "interval held %": round(100 * held / options.trials, 1),
                "loss found %": round(100 * sum(one.outcome is Outcome.REGRESSED for one in lossy) / options.trials, 1),
            }
        )
    report.show(as_json=options.json)


if __name__ == "__main__":
    main()
