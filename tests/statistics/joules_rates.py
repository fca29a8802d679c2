#!/usr/bin/env python3
"""How often `@pytest.mark.joules(effect="5 %")` fails falsely, and how often it finds 5 % more energy.

A project of its own has `runs` tests without a change and as many with 5 % in the last night. Each night is a pytest of
its own; all figures come from an emulated meter in a virtual time, through the fixture, run folders and their history.
A boot's level varies by 0.5 %, a repetition by 0.5 %, and one repetition in fifty stalls (half a normal of 30 %).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
from joules_project import run_tests, write_project

_LIMIT_S = 4 * 3600.0
_TEST = """
import os, random
import pytest

RUNS, NIGHT, LAST = (int(os.environ["RATES_" + name]) for name in ("RUNS", "NIGHT", "LAST"))
SEED = os.environ["RATES_SEED"]

@pytest.mark.joules(effect="5 %", most=5)
@pytest.mark.parametrize("planted", [False, True], ids=["same", "more"])
@pytest.mark.parametrize("number", range(RUNS))
def test_work(target, joules, number, planted):
    from meter import EMULATED
    boot = random.Random(f"{SEED} {number} {planted} {NIGHT}")
    level = boot.gauss(0, 0.005) + (0.05 if planted and NIGHT == LAST else 0)
    noise = random.Random(f"{SEED} {number} {planted} {NIGHT} {EMULATED.time_us}")
    stall = abs(noise.gauss(0, 0.3)) if noise.random() < 0.02 else 0
    with joules("work"):
        EMULATED.spend(1.0, 1.5 * (1 + level + noise.gauss(0, 0.005) + stall))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--nights", type=int, default=10, help="nights of history")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_project(root, _TEST)
        answers = [_night(root, asked, night) for night in range(asked.nights + 1)][-1]
    counts = Counter(answers)
    found = {
        "failed_falsely": counts["same", "failure"],
        "same_not_decided": counts["same", "skipped"],
        "found": counts["more", "failure"],
        "missed": counts["more", "passed"],
        "more_not_decided": counts["more", "skipped"],
    }
    if asked.json:
        print(json.dumps({"runs": asked.runs, "nights": asked.nights, **found}, indent=2))
        return
    print(f"of {asked.runs} tests without a change and as many with 5 % more, after {asked.nights} nights:")
    for name, count in found.items():
        print(f"  {name.replace('_', ' ')}: {count}")


def _night(root: Path, asked: argparse.Namespace, night: int) -> list[tuple[str, str]]:
    """One pytest: the kind of each of its tests, and JUnit's answer."""
    rates = {"RUNS": asked.runs, "NIGHT": night, "LAST": asked.nights, "SEED": asked.seed}
    told = {f"RATES_{name}": str(value) for name, value in rates.items()}
    found, done = run_tests(root, variables=told, timeout_s=_LIMIT_S)
    answers = [(name.rpartition("-")[2].removesuffix("]"), answer) for name, answer in found.items()]
    if len(answers) != 2 * asked.runs or {answer for _, answer in answers} & {"error"}:
        sys.exit(f"night {night}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return answers


if __name__ == "__main__":
    main()
