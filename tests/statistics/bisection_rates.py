#!/usr/bin/env python3
"""How often a bisection under noise is right, and how many boots it takes: ours and others on the same draws."""

from __future__ import annotations

import math
import signal
import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import Pool
from typing import Final

import numpy as np
from bisectors import Bisector, Case, Run, World, bayesect, git_bisect, ours, pinpoint
from output import Cell, Report, Share, arguments, told

from fsjoule.statistics.bisection.forecast import three_phases

CASES: Final = (
    Case("5 %", 0.05),
    Case("5 %, stalls", 0.05, stalls=0.05),
    Case("5 %, drift", 0.05, drift=0.003),
    Case("5 %, walk", 0.05, walk=0.003),
    Case("5 %, a fifth untestable", 0.05, holes=0.2),
    Case("5 %, and a gain of 2 %", 0.05, gain=0.02),
    Case("3 %", 0.03, effect=0.03, budget=400),
    Case("2 %", 0.02, effect=0.02, budget=800),
    Case("no change", 0.0),
    Case("no change, stalls", 0.0, stalls=0.05),
    Case("no change, drift", 0.0, drift=0.003),
    Case("gain of 5 %", -0.05),
    Case("0.2 %, seeds 1 %", 0.002, effect=0.002, noise=0.0002, seeds=0.01),
    Case("no change, seeds 1 %", 0.0, effect=0.002, noise=0.0002, seeds=0.01),
)
METHODS: Final[dict[str, Bisector]] = {
    "fsjoule": ours,
    "git bisect, mean of 15": git_bisect,
    "git_bayesect, .99": bayesect,
    "Pinpoint's rule": pinpoint,
}
# A stated error of at most this is what a user reads as "99 % sure".
_SURE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Timed:
    run: Run
    seconds: float


def bisect(case: Case, method: Bisector, seed: int, trial: int) -> Timed:
    """One trial: the world depends on case and trial alone, so that all methods meet the same."""
    world = World.draw(case, np.random.default_rng([seed, CASES.index(case), trial]))
    start = time.process_time()
    run = method(world, seed=trial)
    return Timed(run, time.process_time() - start)


def row(case: Case, name: str, trials: list[Timed]) -> dict[str, Cell]:
    runs = [trial.run for trial in trials]
    boots = np.array([run.boots for run in runs])
    expected = "right" if case.loss > 0 else "nothing there"
    sure = [run for run in runs if run.says in {"right", "wrong"} and run.error <= _SURE]
    limit = three_phases(case.positions, case.loss / case.noise) if case.loss > 0 else None
    return {
        "case": case.name,
        "method": name,
        "trials": len(runs),
        "right %": round(100 * sum(run.says == expected for run in runs) / len(runs), 2),
        **Share(sum(run.says == "wrong" for run in runs), len(runs)).cells("wrong"),
        "no answer %": round(100 * sum(run.says == "no answer" for run in runs) / len(runs), 2),
        "boots": round(float(boots.mean()), 1),
        "p10": round(float(np.quantile(boots, 0.1)), 1),
        "p90": round(float(np.quantile(boots, 0.9)), 1),
        "p95": round(float(np.quantile(boots, 0.95)), 1),
        "most": int(boots.max()),
        "over limit": round(float(boots.mean()) / limit.boots, 2) if limit else None,
        "builds": round(float(np.mean([run.builds for run in runs])), 1),
        "stated %": round(100 - 100 * math.fsum(run.error for run in sure) / len(sure), 2) if sure else None,
        "then right %": round(100 * sum(run.says == "right" for run in sure) / len(sure), 2) if sure else None,
        "CPU ms a boot": round(1000 * sum(trial.seconds for trial in trials) / int(boots.sum()), 2),
    }


def main() -> None:
    parser = arguments(str(__doc__), trials=200)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES], help="only these cases")
    parser.add_argument("--method", action="append", choices=list(METHODS), help="only these methods")
    options = parser.parse_args()
    report = Report("Bisections of 1000 positions", {"trials": options.trials, "seed": options.seed, "noise %": 2})
    cases = [case for case in CASES if options.case is None or case.name in options.case]
    methods = options.method or list(METHODS)
    case, name = cases[0], methods[0]
    trials: list[Timed] = []
    with Pool(options.jobs, _obey_their_parent) as pool:  # which ends its processes, also in the midst of a trial
        try:
            for case, name in product(cases, methods):
                if case.holes and name != "fsjoule":
                    continue  # none of the others takes clusters of skips as they come
                one, trials = partial(bisect, case, METHODS[name], options.seed), []
                chunk = max(1, min(10, options.trials // (8 * options.jobs)))
                runs = pool.imap(one, range(options.trials), chunksize=chunk)
                for each in told(runs, options.trials, f"{case.name}, {name}"):
                    trials.append(each)
                report.rows.append(row(case, name, trials))
        except KeyboardInterrupt:
            # Hours may have gone into them.
            report.rows += [row(case, name, trials)] if trials else []
    report.show(as_json=options.json)


def _obey_their_parent() -> None:
    """Ctrl-C reaches all of a terminal's processes: these wait for the pool to end them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM):  # also in the background, where a shell ignores the first
        signal.signal(ending, signal.default_int_handler)
    main()
