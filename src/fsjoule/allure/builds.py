"""Which runs a report is of, and which are its history: the newest of each board and suite, and all before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, ResultError
from fsjoule.store import LoadedRun, load_run
from fsjoule.store.index import check_folders, find_runs

MOST: Final = 60


@dataclass(frozen=True, slots=True)
class Builds:
    """Runs in the order of time. `problems` says what is missing, and why; `left_out` counts older runs."""

    current: tuple[LoadedRun, ...]
    earlier: tuple[LoadedRun, ...]
    problems: tuple[str, ...]
    left_out: int

    @property
    def name(self) -> str:
        """What the report is called."""
        if not self.current:
            return "no run"
        newest = self.current[-1]
        what = build_name(newest) if len(self.current) == 1 else f"{len(self.current)} runs"
        return f"{what}, {newest.run.started_utc[:16].replace('T', ' ')}"


def build_name(loaded: LoadedRun) -> str:
    """What tables of builds call it, beside its date: `k3v9q2`, with the commit under test if it is known."""
    return f"{loaded.run.run_id} {loaded.run.versions.get('commit', '')[:12]}".rstrip()


def read_builds(paths: Iterable[Path], *, most: int = MOST) -> Builds:
    """Read the `most` newest run folders at and below `paths`. A damaged one is named, and so is what it lacks.

    Raises ConfigError for a path that is not there.
    """
    wanted = check_folders(paths)
    problems: list[str] = []
    try:
        folders, faults = find_runs(wanted)
    except ConfigError as error:
        return Builds((), (), (error.what,), 0)
    problems += [f"{fault.path.name}: {fault.reason}" for fault in faults]
    runs: dict[str, LoadedRun] = {}
    for folder in folders[-most:]:
        try:
            loaded = load_run(folder)
        except ResultError as error:
            problems.append(f"{folder.name}: {error.what}")
            continue
        # A copy of a run is the same run.
        runs.setdefault(loaded.run.run_id, loaded)
    in_order = sorted(runs.values(), key=lambda loaded: (loaded.run.started_utc, loaded.run.run_id))
    newest = {_kind(loaded): loaded for loaded in in_order}
    current = tuple(loaded for loaded in in_order if newest[_kind(loaded)] is loaded)
    earlier = tuple(loaded for loaded in in_order if newest[_kind(loaded)] is not loaded)
    problems += [line for loaded in current for line in _lacks(loaded)]
    return Builds(current, earlier, tuple(problems), len(folders) - len(folders[-most:]))


def _kind(loaded: LoadedRun) -> tuple[str, str]:
    """Runs of one kind follow each other."""
    run = loaded.run
    # A run that ended before its board said anything has its name in the folder's only.
    board = run.board.name if run.board else loaded.path.name.partition("-")[2].removesuffix(f"-{run.run_id}")
    return board, run.plan.suite


def _lacks(loaded: LoadedRun) -> list[str]:
    damaged = {name: why.replace(f"{loaded.path}/", "") for name, why in loaded.damaged.items()}
    lacks = [f"{loaded.path.name}: {name} was left out: {why}" for name, why in damaged.items()]
    if loaded.run.abort_reason:
        lacks.append(f"{loaded.path.name}: the run was not completed: {loaded.run.abort_reason}")
    return lacks
