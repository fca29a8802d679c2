"""The gate on the deterministic board: how often it is wrong where nothing changed, and whether it sees a planted loss.

python tests/statistics/deterministic_gate.py --comparisons 20
python tests/statistics/deterministic_gate.py --loss BASELINE CANDIDATE

The first compares a kernel with itself, over and over: pairs of boots go to a gate until it has decided, the next ones
to a new gate. No boot is part of two comparisons, and no two boots share their random numbers; all of them are in one
run folder. Exit code 1 if a regression was called.

The second measures two kernels, of which the candidate has a loss (tests/statistics/planted-loss.patch), and ends with
exit code 1 if that was not called within --pairs. Both measure what `--workloads` says, on one filesystem.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from output import Cell, Report, Row, Share

from fsjoule import lab
from fsjoule.host.messages import lines_to
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.pairs import BootPair, measure_pairs
from fsjoule.runs.request import choose
from fsjoule.statistics.policy import Policy, parse_policy
from fsjoule.store.gate import GateVerdict
from fsjoule.verdicts.gate import Judge

PROJECT: Final = Path(__file__).parents[2]
_SIZE_MIB: Final = 16


@dataclass
class Comparisons:
    """Gates one after the other over one stream of pairs."""

    policy: Policy
    wanted: int
    rows: list[Row] = field(default_factory=list[Row])
    verdicts: list[GateVerdict] = field(default_factory=list[GateVerdict])
    _judge: Judge | None = None

    def see(self, pair: BootPair) -> str | None:
        """Take one more pair; returns why no more are wanted, or None."""
        judge = self._judge = self._judge or Judge(self.policy, guest_time=True)
        reason = judge.see(pair)
        if reason is None and judge.pairs < self.policy.budget_pairs:
            return None
        judge.finish()
        self._judge = None
        self.verdicts.append(judge.verdict)
        worst = max(judge.findings, key=lambda one: one.basis.towards_regressed, default=None)
        self.rows.append(
            {
                "comparison": len(self.verdicts),
                "verdict": judge.verdict.value,
                "pairs": judge.pairs,
                "figures": len(judge.findings),
                "nearest to regressed": f"{worst.subject.label} {worst.metric}" if worst else "",
                "ratio": round(worst.basis.ratio, 5) if worst and worst.basis.ratio else None,
                "evidence %": round(100 * worst.basis.towards_regressed, 1) if worst else None,
                "noise %": round(100 * worst.basis.relative_noise, 3) if worst and worst.basis.relative_noise else None,
            }
        )
        print(f"comparison {len(self.verdicts)} of {self.wanted}: {self.rows[-1]}", file=sys.stderr, flush=True)
        return "all comparisons are made" if len(self.verdicts) == self.wanted else None

    @property
    def false(self) -> Share:
        return Share(sum(verdict is GateVerdict.REGRESSED for verdict in self.verdicts), len(self.verdicts))


def measure(chosen: argparse.Namespace, kernels: tuple[str, str], policy: Policy, comparisons: Comparisons) -> Path:
    """Pairs of boots of the two kernels until the comparisons are made; returns the run folder."""
    suite = chosen.results / "gate-small.toml"
    suite.parent.mkdir(parents=True, exist_ok=True)
    suite.write_text(
        '[suite]\ntitle = "a few jobs, for many boots"\n'
        f"[[suite.workload]]\noperation = {chosen.workloads.split(',')}\nblock_kib = 16\nsize_mib = {_SIZE_MIB}\n"
    )
    choice = choose(
        BenchOptions(
            suite=str(suite),
            fs=chosen.fs,
            repeat=policy.budget_pairs * comparisons.wanted,
            provision="scratch",
            results=chosen.results,
            seed=chosen.seed,
        ),
        pair=kernels,
    )
    with lines_to(lambda line: print(line, file=sys.stderr, flush=True)):
        environment = lab.read_environment(chosen.environment)
        done = measure_pairs(choice, environment, enough=comparisons.see, command=(sys.executable, *sys.argv))
    return done.folder


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernel", default="6.1", help="compared with itself (default: %(default)s)")
    parser.add_argument("--comparisons", type=int, default=20, help="how many (default: %(default)s)")
    parser.add_argument("--loss", nargs=2, metavar=("BASELINE", "CANDIDATE"), help="two kernels instead, once")
    parser.add_argument("--pairs", type=int, default=2, help="of boots, at most, for --loss (default: %(default)s)")
    parser.add_argument("--policy", type=Path, default=PROJECT / "env" / "gate.toml", help="(default: %(default)s)")
    parser.add_argument("--environment", type=Path, default=PROJECT / "env" / "deterministic.yaml")
    parser.add_argument("--fs", default="ext4", help="(default: %(default)s)")
    parser.add_argument("--workloads", default="write,randread", help="fio's patterns (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed for the order and all random choices (default: %(default)s)"
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="where the run folder goes")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    chosen = parser.parse_args()
    policy = parse_policy(chosen.policy.read_text(), file=chosen.policy)
    kernels = tuple(chosen.loss) if chosen.loss else (chosen.kernel, chosen.kernel)
    if chosen.loss:
        policy = replace(policy, budget_pairs=chosen.pairs, least_pairs=min(policy.least_pairs, chosen.pairs))
    comparisons = Comparisons(policy, 1 if chosen.loss else chosen.comparisons)
    started_s = time.monotonic()
    folder = measure(chosen, kernels, policy, comparisons)
    regressed = comparisons.false
    settings: dict[str, Cell] = {
        "run": folder.name,
        "regressed": f"{regressed.count} of {regressed.of}",
        "at most % (95 % confidence)": round(regressed.at_most_percent, 1),
        "minutes": round((time.monotonic() - started_s) / 60, 1),
    }
    Report("planted loss" if chosen.loss else "A/A", settings, comparisons.rows).show(as_json=chosen.json)
    return int(regressed.count == 0 if chosen.loss else regressed.count > 0)


if __name__ == "__main__":
    sys.exit(main())
