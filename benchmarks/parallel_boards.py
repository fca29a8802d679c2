"""What boards in guest time that boot at once gain: pairs of boots on several, then the same pairs on one.

python benchmarks/parallel_boards.py --boards 4 --pairs 6

Each turn is what a gate measures (suite quick of ext4, a kernel against itself, one seed), with all that belongs to it:
labs come up and go down. The card images are built before. The figures of both turns must be equal to the digit.
Nothing else should run, for the ratio is that of the free cores. Exit code 1 if a figure differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from common import show

from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.lab import read_environment
from fsjoule.runs.pairs import Pair, measure_pairs
from fsjoule.runs.request import choose
from fsjoule.store.reader import LoadedRun, load_run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "statistics"))
from deterministic_repeat import differences

_TURN_LIMIT_S: Final = 3 * 3600.0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _never(_pair: Pair) -> str | None:
    return None


def _measure(boards: int, pairs: int, results: Path) -> None:
    environment = read_environment(project_dir() / "env" / "deterministic.yaml")
    choice = choose(
        suite_name="quick",
        filesystems="ext4",
        kernels=("6.1", "6.1"),
        repeat=pairs,
        provision="scratch",
        results=results,
        seed=3,
        environment=environment,
        boards=boards,
    )
    measure_pairs(choice, environment, enough=_never, say=_say, command=tuple(sys.argv))


def _turn(boards: int, pairs: int, results: Path) -> tuple[float, LoadedRun]:
    """Seconds of a turn in a process of its own, and its run."""
    words = [sys.executable, __file__, "--boards", str(boards), "--pairs", str(pairs), "--turn", results]
    started_s = time.monotonic()
    process.run(words, timeout_s=_TURN_LIMIT_S)
    took_s = time.monotonic() - started_s
    [folder] = results.iterdir()
    return took_s, load_run(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--boards", type=int, default=len(os.sched_getaffinity(0)), help="(default: the cores)")
    parser.add_argument("--pairs", type=int, default=6, help="pairs of boots in each turn (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--turn", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.turn is not None:
        _measure(chosen.boards, chosen.pairs, chosen.turn)
        return 0
    with tempfile.TemporaryDirectory() as name:
        _turn(1, 1, Path(name) / "cards")
        together_s, together = _turn(chosen.boards, chosen.pairs, Path(name) / "together")
        alone_s, alone = _turn(1, chosen.pairs, Path(name) / "alone")
        found = differences(alone.measurements, together.measurements)
    differing = [each for each in found if each.first != each.other]
    result = {
        "boots": 2 * chosen.pairs,
        "seconds on one board": round(alone_s),
        f"seconds on {chosen.boards} boards": round(together_s),
        "times as fast": round(alone_s / together_s, 2),
        "figures": len(found),
        "figures that differ": len(differing),
    }
    show("Boards in guest time that boot at once", result, as_json=chosen.json)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
