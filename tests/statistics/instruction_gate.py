#!/usr/bin/env python3
"""A gate on instructions: how often it is wrong, and what it finds, over real boots of kernels with planted loops.

::

    python tests/statistics/instruction_gate.py plant linux-source-6.1.tar.xz linux   # a repository with tags
    fsjoule kernel build --tree linux --rev base                                      # and of each other tag
    fsjoule bench --lg-env env/deterministic.yaml --suite tests/statistics/eight.toml --fs ext4 --repeat 12 \
        --boards 2 --kernel BASE,LAYOUT,LOOP7                                         # their folders, or links to them
    python tests/statistics/instruction_gate.py add pool.json results/RUN
    python tests/statistics/instruction_gate.py judge pool.json
    python tests/statistics/instruction_gate.py simulate pool.json --factors 1,2,5

In guest time all kernels share the seed of a repetition, as both boots of a gate's pair do. So two of a repetition are
a pair, and a kernel against itself is equal to the digit: gates without a loss are over code that only moved.
`judge` draws gates from the pool and asks the gate's own judge. No pair is used twice in a gate. Gates share boots, so
the stated limits hold for the pool's own boots. The asked loss is also multiplied onto the writes of moved code.
`simulate` draws the deviations of a pair's boots from those measured (with `t3` times a factor with the tails of that
distribution), all figures of a boot together, and judges many gates at once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from output import Report, Row, Share, told
from planted_range import Repository, moves
from planted_series import in_block_code
from planted_series import series as patches
from rules import Floats

from fsjoule.model import Provision, SeriesKey
from fsjoule.model.metrics import Metric, figure_of
from fsjoule.model.series import Series
from fsjoule.statistics.policy import Policy
from fsjoule.store.gate import GateVerdict
from fsjoule.store.reader import load_run
from fsjoule.verdicts.gate import BootPair, Judge, Test

BASE: Final = "base"
LAYOUT: Final = "layout"
ROUNDS: Final = (3, 7, 13, 34, 68)  # 0.05, 0.1, 0.2, 0.5 and 1 % of a write
BLOCK_ROUNDS: Final = (9, 18)
_LOOP: Final = "loop"
_BLOCK: Final = "block"


@dataclass(frozen=True, slots=True)
class PoolBoot:
    """One boot: its kernel, the run's seed and the repetition, and instructions per MiB by workload.

    A kernel's boots with the same seed and repetition are the same, in whatever run.
    """

    kernel: str
    seed: int
    repetition: int
    figures: dict[str, float]


def plant(source: Path, tree: Path) -> None:
    """A repository with a tag for each kernel: `base`, the same code at other addresses, and one for each loop.

    Loops are in ext4's writes, and in the block layer, where reads have them, too.
    """
    repository = Repository(tree)
    repository.begin(source)
    [loop] = [number for number, each in enumerate(patches()) if "wait" in each.subject]
    changes = {LAYOUT: [moves("mm/filemap.c"), moves("fs/ext4/balloc.c"), moves("block/bio.c")]}
    changes |= {f"{_LOOP}{rounds}": [patches(rounds)[loop]] for rounds in ROUNDS}
    changes |= {f"{_BLOCK}{rounds}": [in_block_code(rounds)] for rounds in BLOCK_ROUNDS}
    for name, commits in changes.items():
        repository.git("checkout", "--quiet", "--detach", BASE)
        repository.add(list(commits))
        repository.git("tag", name)


def read_pool(file: Path) -> list[PoolBoot]:
    return [PoolBoot(**each) for each in json.loads(file.read_text())] if file.exists() else []


def alike(pool: Sequence[PoolBoot]) -> list[PoolBoot]:
    """The boots with those figures that all have."""
    common = [name for name in pool[0].figures if all(name in each.figures for each in pool)]
    return [replace(each, figures={name: each.figures[name] for name in common}) for each in pool]


def add_run(pool: Path, run: Path) -> int:
    """Add the whole boots of a run, also of one that was interrupted; returns how many the pool has then."""
    loaded = load_run(run)
    figures: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for one in loaded.measurements:
        figure = figure_of(one, Metric.INSTRUCTIONS)
        if one.valid and figure is not None:
            figures[one.kernel, one.repetition][one.workload.identity] = figure
    most = max(map(len, figures.values()), default=0)
    seed = loaded.run.plan.seed
    known = {(each.kernel, each.seed, each.repetition): each for each in read_pool(pool)}
    known |= {
        (kernel, seed, repetition): PoolBoot(kernel, seed, repetition, found)
        for (kernel, repetition), found in figures.items()
        if len(found) == most
    }
    boots = list(known.values())
    pool.write_text(json.dumps([asdict(each) for each in boots], indent=1) + "\n")
    return len(boots)


def pairs_of(pool: Sequence[PoolBoot], baseline: str, candidate: str) -> list[tuple[PoolBoot, PoolBoot]]:
    """The boots of both kernels that share their seed."""
    boots = {(each.kernel, each.seed, each.repetition): each for each in pool}
    both = ((each, boots.get((candidate, each.seed, each.repetition))) for each in pool if each.kernel == baseline)
    return [(one, other) for one, other in both if other is not None]


def drawn(pairs: Sequence[tuple[PoolBoot, PoolBoot]], draw: random.Random) -> Iterator[BootPair]:
    """The pairs for one gate, in random order."""
    for number, (baseline, candidate) in enumerate(draw.sample(list(pairs), len(pairs)), start=1):
        figures = {_test(name): (baseline.figures[name], candidate.figures[name]) for name in baseline.figures}
        yield BootPair(number, figures, len(figures))


def _test(workload: str) -> Test:
    key = SeriesKey("eight", "deterministic", "card", "ext4", (), (), Provision.SCRATCH, workload)
    return Series(key, simulated=True), Metric.INSTRUCTIONS


def policy_for(effect: float, pairs: int) -> Policy:
    return Policy(metrics=(Metric.INSTRUCTIONS,), smallest_effect=effect, budget_pairs=pairs, least_pairs=2)


def judged(policy: Policy, pairs: Iterator[BootPair]) -> tuple[GateVerdict, int]:
    """The gate's answer, and how many pairs it took."""
    judge = Judge(policy, guest_time=True)
    for pair in pairs:
        if judge.see(pair) is not None or judge.pairs == policy.budget_pairs:
            break
    judge.finish()
    return judge.verdict, judge.pairs


def judge_pool(chosen: argparse.Namespace) -> Report:
    """Gates over real figures, of all kernels that were measured in pairs."""
    pool = alike(read_pool(chosen.pool))
    kernels = dict.fromkeys(each.kernel for each in pool)
    counts = {name: sum(each.kernel == name for each in pool) for name in kernels}
    report = Report("Gates over real boots", {**counts, "figures": len(pool[0].figures), "seed": chosen.seed})
    for baseline, candidate in product(kernels, kernels):
        pairs = pairs_of(pool, baseline, candidate)
        # A gate against a kernel is as good as one for it; a kernel with a loop is no baseline.
        if baseline == candidate or not pairs or baseline.startswith((_LOOP, _BLOCK)):
            continue
        for effect in chosen.asked:
            for planted in (0.0, effect) if {baseline, candidate} == {BASE, LAYOUT} else (0.0,):
                report.rows.append(_row(chosen, pairs, effect, planted))
    return report


def _row(chosen: argparse.Namespace, pairs: Sequence[tuple[PoolBoot, PoolBoot]], effect: float, loss: float) -> Row:
    draw = random.Random(chosen.seed)
    policy = policy_for(effect, chosen.pairs)
    one, other = pairs[0]
    name = f"{one.kernel} > {other.kernel}"
    planted = [(a, slower(b, loss)) for a, b in pairs]
    changes = {
        figure: float(np.mean([np.log(b.figures[figure] / a.figures[figure]) for a, b in planted]))
        for figure in one.figures
    }
    gates = told(range(chosen.gates), chosen.gates, name)
    results = [judged(policy, drawn(planted, draw)) for _ in gates]
    largest = max(changes, key=lambda each: changes[each])
    return {
        "gate": name,
        "asked %": round(100 * effect, 3),
        "multiplied %": round(100 * loss, 3),
        "pairs": len(pairs),
        "largest change": f"{largest.split()[0]} {100 * changes[largest]:+.3f} %",
        **Share(sum(verdict is GateVerdict.REGRESSED for verdict, _ in results), len(results)).cells("regressed"),
        **{
            f"{kind.name.lower()} %": round(100 * sum(verdict is kind for verdict, _ in results) / len(results), 1)
            for kind in (GateVerdict.PASSED, GateVerdict.UNDECIDED)
        },
        "boots": round(2 * float(np.mean([used for _, used in results])), 2),
    }


def slower(boot: PoolBoot, loss: float) -> PoolBoot:
    """The boot with that much more in its writes."""
    figures = {name: value * (1 + loss * ("write" in name)) for name, value in boot.figures.items()}
    return replace(boot, figures=figures)


def deviations(pool: Sequence[PoolBoot]) -> tuple[Floats, Floats]:
    """What both boots of a pair share, and how each deviates from it: shapes (pairs, figures), (boots, figures).

    Both are of moved code, whose mean effect is taken off. Deviations are widened for the degrees of freedom that the
    means of pairs and that of the effect take.
    """
    pairs = pairs_of(pool, BASE, LAYOUT)
    logs = np.log([[list(each.figures.values()) for each in pair] for pair in pairs])
    shared = logs.mean(axis=1)
    own = logs - shared[:, None]
    own -= own.mean(axis=0)
    own *= np.sqrt(2 * len(pairs) / (len(pairs) - 1))
    return shared - np.median(shared, axis=0), own.reshape(-1, logs.shape[-1])


def simulate(chosen: argparse.Namespace) -> Report:
    """Many gates with the pool's deviations, and a loss in half of the figures."""
    pool = alike(read_pool(chosen.pool))
    shared, own = deviations(pool)
    settings = {"trials": chosen.trials, "seed": chosen.seed, "boots": len(own)}
    spreads = zip(pool[0].figures, shared.std(axis=0), own.std(axis=0), strict=True)
    told_spreads = {f"{n.split()[0]} %": f"{100 * a:.3f} of pairs, {100 * b:.3f} within" for n, a, b in spreads}
    report = Report("Simulated gates", {**settings, **told_spreads})
    for shape, factor, effect in product(chosen.shapes.split(","), chosen.factors, chosen.asked):
        for loss in (0.0, effect):
            row = _simulated(chosen, (shared, factor * own), shape, (effect, loss))
            report.rows.append({"of the pool's noise": factor, **row})
            print(report.rows[-1], file=sys.stderr, flush=True)
    return report


def _simulated(
    chosen: argparse.Namespace, seen: tuple[Floats, Floats], shape: str, effects: tuple[float, float]
) -> Row:
    shared, own = seen
    asked, loss = effects
    rng = np.random.default_rng(chosen.seed)
    lost = np.log1p(loss) * (np.arange(own.shape[1]) % 2 == 0)
    tests = [_test(f"figure {number}") for number in range(own.shape[1])]

    def pairs() -> Iterator[BootPair]:
        for number in range(1, chosen.pairs + 1):
            boots = own[rng.integers(len(own), size=2)]
            if shape == "t3":
                boots = boots * np.sqrt(3 / rng.chisquare(3, (2, 1)))
            elif shape == "normal":
                boots = rng.normal(size=boots.shape) * own.std(axis=0)
            boots = boots + shared[rng.integers(len(shared))]
            one, other = np.exp(boots[0]).tolist(), np.exp(boots[1] + lost).tolist()
            yield BootPair(number, dict(zip(tests, zip(one, other, strict=True), strict=True)), len(tests))

    results = [judged(policy_for(asked, chosen.pairs), pairs()) for _ in range(chosen.trials)]
    regressed = [used for verdict, used in results if verdict is GateVerdict.REGRESSED]
    return {
        "noise": shape,
        "asked %": round(100 * asked, 3),
        "loss %": round(100 * loss, 3),
        **Share(len(regressed), len(results)).cells("regressed"),
        "passed %": round(100 * sum(verdict is GateVerdict.PASSED for verdict, _ in results) / len(results), 2),
        "boots": round(2 * float(np.mean([used for _, used in results])), 2),
        **{
            f"at most {2 * most} boots %": round(100 * sum(used <= most for used in regressed) / len(results), 2)
            for most in (3, 4)
        },
    }


def _factors(text: str) -> list[float]:
    return [float(each) for each in text.split(",")]


def _shares(text: str) -> list[float]:
    return [float(each) / 100 for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    planting = commands.add_parser("plant", help="make the kernels' repository from Debian's source")
    planting.add_argument("source", type=Path)
    planting.add_argument("tree", type=Path)
    adding = commands.add_parser("add", help="add the boots of finished or interrupted runs")
    judging = commands.add_parser("judge", help="gates over the pool's figures")
    judging.add_argument("--gates", type=int, default=200, help="a row (default: %(default)s)")
    simulating = commands.add_parser("simulate", help="gates with noise of the pool's kind")
    simulating.add_argument("--trials", type=int, default=200, help="gates a row (default: %(default)s)")
    simulating.add_argument("--factors", type=_factors, default=[1.0], help="of the pool's noise (default: 1)")
    simulating.add_argument("--shapes", default="bootstrap,t3", help="bootstrap, t3, normal (default: %(default)s)")
    for each in (adding, judging, simulating):
        each.add_argument("pool", type=Path)
        each.add_argument("--seed", type=int, default=1, help="of all randomness (default: %(default)s)")
    for each in (judging, simulating):
        each.add_argument("--asked", type=_shares, default=[0.0005, 0.001, 0.002], help="what matters, in per cent")
        each.add_argument("--pairs", type=int, default=10, help="of boots, at most (default: %(default)s)")
        each.add_argument("--json", action="store_true", help="JSON instead of a table")
    adding.add_argument("runs", type=Path, nargs="+")
    chosen = parser.parse_args()
    match chosen.command:
        case "plant":
            plant(chosen.source.absolute(), chosen.tree.absolute())
        case "add":
            for run in chosen.runs:
                print(f"{chosen.pool}: {add_run(chosen.pool, run)} boots")
        case "judge":
            judge_pool(chosen).show(as_json=chosen.json)
        case _:
            simulate(chosen).show(as_json=chosen.json)


if __name__ == "__main__":
    main()
