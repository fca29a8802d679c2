"""The share of the time that a run holds its board in which the suite's work is done, by phase.

python benchmarks/utilisation.py --beside ../before --turns 2 -- --suite energy-emmc-2025 --fs ext4,btrfs --repeat 1

Runs the bench of this checkout, and with `--beside` that of another one by turns, so that both see the same load. What
stands behind `--` goes to the bench. The time is from the run's begin to its end: building cards and kernels comes
before. `other` is outside all phases. A first run builds the cards, and is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from common import show

from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.model import Run
from fsjoule.report.summary import MEASURING
from fsjoule.store.reader import load_run_file

_LIMIT_S: Final = 3 * 3600.0
# What comes before the board is held, and a sum of others.
_NOT_HELD: Final = ("setup", "board_on")


def phases_s(run: Run) -> dict[str, float]:
    """The seconds of a complete run by phase, `other` among them, and `held`."""
    assert run.finished_utc is not None
    began, ended = map(datetime.fromisoformat, (run.started_utc, run.finished_utc))
    found = {name: seconds for name, seconds in run.phases_s.items() if name not in _NOT_HELD}
    held_s = (ended - began).total_seconds()
    return {**found, "other": max(0.0, held_s - sum(found.values())), "held": held_s}


def utilisation(spent_s: dict[str, float]) -> float:
    return sum(spent_s.get(name, 0.0) for name in MEASURING) / spent_s["held"]


def _measured(checkout: Path, words: Sequence[str]) -> dict[str, float]:
    """A bench of a checkout, with this Python's packages."""
    with tempfile.TemporaryDirectory(prefix="utilisation-") as results:
        command = [sys.executable, "-m", "pytest", "tests/bench", "-q", "--results", results, *words]
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        # On a busy machine a measurement may be invalid, and then the bench ends with 1: its time counts all the same.
        done = process.run(command, cwd=checkout, env=environment, timeout_s=_LIMIT_S, check=False)
        folders = list(Path(results).iterdir())
        spent_s = phases_s(load_run_file(folders[0])) if folders else {}
    if not any(spent_s.get(name) for name in MEASURING):
        said = (done.stderr + done.stdout).decode()[-4000:]
        raise SystemExit(f"the bench of {checkout} measured nothing: {said}")
    told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent_s.items())
    print(f"{checkout}: {told}; utilisation {utilisation(spent_s):.3f}", file=sys.stderr, flush=True)
    return spent_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout to measure by turns")
    parser.add_argument("--turns", type=int, default=1, help="runs of each (default: %(default)s)")
    parser.add_argument("--no-warm-up", action="store_true", help="the cards are built already")
    parser.add_argument("--lg-env", default="env/virtual.yaml", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("words", nargs="*", metavar="-- OPTION", help="options of the bench")
    chosen = parser.parse_args()
    words = ["--lg-env", chosen.lg_env, *(chosen.words or ["--suite", "energy-emmc-2025", "--fs", "ext4"])]
    checkouts = {"this": project_dir()} | ({"beside": chosen.beside.resolve()} if chosen.beside else {})
    if not chosen.no_warm_up:
        _measured(project_dir(), [*words, "--repeat", "1", "-k", "write"])
    found: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for turn in range(chosen.turns):
        for name in checkouts if turn % 2 == 0 else reversed(checkouts):
            found[name].append(_measured(checkouts[name], words))
    result: dict[str, float | str] = {"load average": os.getloadavg()[1]}
    for name, turns in found.items():
        for phase in dict.fromkeys(phase for turn in turns for phase in turn):
            result[f"{name}: {phase} [s]"] = statistics.mean(turn.get(phase, 0.0) for turn in turns)
        result[f"{name}: utilisation [%]"] = 100 * statistics.mean(map(utilisation, turns))
    show("Where the held time goes", result, as_json=chosen.json)


if __name__ == "__main__":
    main()
