"""Sixty nights of six boards with an outage, a loss that was cured, and a commit that costs all boards.

As a program: `python tests/helpers/lab_mornings.py FOLDER` writes the run folders and their index into FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from nights import Nights, Speed

from fsjoule.model import IoPattern
from fsjoule.model.metrics import Figure
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs

NIGHTS: Final = 60
# Boards with their speed, against that of the first.
BOARDS: Final = {"colibri": 1.0, "imx6ull": 0.7, "orangepi": 1.6, "raspi3b": 2.1, "sabrelite": 1.3, "wandboard": 0.9}
# The boards at the exporter whose supply sagged, from the first night until before the second.
OUTAGE: Final = (frozenset({"orangepi", "raspi3b", "sabrelite"}), 16, 26, 0.65)
# Reads of ext4 on two boards, slower from a commit until the one that cured it.
CURED: Final = (frozenset({"colibri", "imx6ull"}), 34, 46, 0.85)
# Random writes of btrfs on all boards, since a commit that is still there.
COSTS: Final = (52, 0.88)


def speed_of(board: str) -> Speed:
    def speed(night: int, filesystem: str, pattern: IoPattern, _kernel: str) -> Figure:
        figure = BOARDS[board]
        boards, first, end, factor = OUTAGE
        if board in boards and first <= night < end:
            figure *= factor
        boards, first, end, factor = CURED
        if board in boards and (filesystem, pattern) == ("ext4", IoPattern.READ) and first <= night < end:
            figure *= factor
        if (filesystem, pattern) == ("btrfs", IoPattern.RANDWRITE) and night >= COSTS[0]:
            figure *= COSTS[1]
        return figure

    return speed


def write_lab(results: Path, nights: int = NIGHTS) -> Path:
    """Write the runs, with a new kernel every second night, and their index; gives the index."""
    for number, board in enumerate(BOARDS):
        made = Nights(
            speed=speed_of(board),
            kernels=lambda night: (f"6.12.{1 + night // 2}",),
            board=board,
            seed=number,
            prefix=board[0],
        )
        made.write(results, nights)
    file = results / "index.sqlite"
    with open_index(file, create=True) as index:
        import_runs(index, [results])
    return file


if __name__ == "__main__":
    sys.stdout.write(f"{write_lab(Path(sys.argv[1]))}\n")
