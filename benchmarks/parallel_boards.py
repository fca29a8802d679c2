"""What boards in guest time that boot at once gain: pairs of boots on several, then the same pairs on one.

python benchmarks/parallel_boards.py --boards 4 --pairs 6

Each turn is what a gate measures (suite quick of ext4, a kernel against itself, one seed), with all that belongs to it:
labs come up and go down. The card images are built before. The figures of both turns must be equal to the digit.
Nothing else should run: the ratio is that of the cores that are free. The exit code is 1 if a figure differs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from common import show
from guest_time import options, quick_ext4, say, turn_s

from fsjoule.host.messages import lines_to
from fsjoule.runs.pairs import BootPair, measure_pairs
from fsjoule.store.reader import LoadedRun, load_run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "statistics"))
from deterministic_repeat import differences


def _never(_pair: BootPair) -> str | None:
    return None


def _measure(boards: int, pairs: int, results: Path) -> None:
    choice, environment = quick_ext4(results, ("6.1", "6.1"), repeat=pairs, boards=boards)
    measure_pairs(choice, environment, enough=_never, command=tuple(sys.argv))


def _turn(boards: int, pairs: int, results: Path) -> tuple[float, LoadedRun]:
    """A turn's seconds, and its run."""
    took_s = turn_s("--boards", str(boards), "--pairs", str(pairs), "--turn", results)
    [folder] = results.iterdir()
    return took_s, load_run(folder)


def main() -> int:
    parser = options(__doc__ or "")
    parser.add_argument("--pairs", type=int, default=6, help="pairs of boots in each turn (default: %(default)s)")
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
    with lines_to(say):
        sys.exit(main())
