"""A board's earlier runs in a folder of results, and what they say of a plan's cost."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.host.inside import list_inside
from fsjoule.model import BoardProfile
from fsjoule.store.reader import LoadedRun, load_run, load_run_file
from fsjoule.suites import Rates, learned

# A board's newest runs predict it best.
_RUNS_LOOKED_AT: Final = 20
# Of an emulated board whose clock counts instructions, on an idle computer.
_AROUND_IN_GUEST_TIME_S: Final = 12.0


def earlier_runs(results: Path, profile: BoardProfile) -> Generator[LoadedRun]:
    """The runs of this board below `results`, the newest first, read one by one; damaged ones are left out."""
    try:
        names = list_inside(results).folders
    except ResultError:
        return
    for name in sorted(names, reverse=True):
        if f"-{profile.name}-" not in name:
            continue
        try:
            run = load_run_file(results / name)
            # A folder name of the board `virtual-x86` contains `virtual` too.
            if {board.name for board in run.boards.values()} == {profile.name}:
                yield load_run(results / name)
        except ResultError:
            continue


def earlier_rates(results: Path, profile: BoardProfile) -> Rates:
    """The rates learned from the newest runs of this board below `results`; a guess if there are none."""
    runs = islice(earlier_runs(results, profile), _RUNS_LOOKED_AT)
    found = learned((each.run, each.measurements) for each in runs)
    guest_time = profile.guest_time and not found.runs
    return replace(found, around_s=_AROUND_IN_GUEST_TIME_S) if guest_time else found
