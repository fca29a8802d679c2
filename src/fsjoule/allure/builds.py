"""Which runs a report is of, and which are its history: the newest build of each board and suite, and all before it.

A build is a pipeline's runs of a board and a suite, or one run that no pipeline made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, ResultError
from fsjoule.store import LoadedRun, load_run
from fsjoule.store.index import check_folders, find_runs

MOST: Final = 60

Build = tuple[LoadedRun, ...]


@dataclass(frozen=True, slots=True)
class Builds:
    """Runs in the order of time, the earlier ones as builds. `problems` says what is missing, and why.

    `left_out` counts older runs.
    """

    current: tuple[LoadedRun, ...]
    earlier: tuple[Build, ...]
    problems: tuple[str, ...]
    left_out: int

    @property
    def name(self) -> str:
        """What the report is called."""
        if not self.current:
            return "no run"
        newest = self.current[-1]
        what = build_name((newest,)) if len(self.current) == 1 else f"{len(self.current)} runs"
        return f"{what}, {newest.run.started_utc[:16].replace('T', ' ')}"


def build_name(build: Build) -> str:
    """What tables of builds call it, beside its date: `k3v9q2`, with the commit under test if it is known."""
    newest = build[-1].run
    pipeline = newest.versions.get("pipeline", "")
    return f"{f'pipeline {pipeline}' if pipeline else newest.run_id} {newest.versions.get('commit', '')[:12]}".rstrip()


def read_builds(paths: Iterable[Path], *, history: Iterable[Path] = (), most: int = MOST) -> Builds:
    """Read the run folders of the `most` newest builds at and below `paths`; those in `history` are earlier ones only.

    A damaged one is named, and so is what it lacks. Raises ConfigError for a path that is not there.
    """
    folders, problems = _folders(paths)
    old, more = _folders(history)
    # Before the first build there is no history, which is not a fault.
    problems += more if old else []
    # Names begin with the date.
    newest_first = sorted({*folders, *old}, key=lambda folder: (folder.name, folder), reverse=True)
    runs: dict[str, LoadedRun] = {}
    kept: set[tuple[str, ...]] = set()
    read = 0
    for folder in newest_first:
        try:
            loaded = load_run(folder)
        except ResultError as error:
            problems.append(f"{folder.name}: {error.what}")
            read += 1
            continue
        if len(kept | {_build_key(loaded)}) > most:
            break
        kept.add(_build_key(loaded))
        read += 1
        # A copy of a run is the same run; one that is to be shown is.
        known = runs.get(loaded.run.run_id)
        if known is None or known.path in old:
            runs[loaded.run.run_id] = loaded
    in_order = sorted(runs.values(), key=lambda loaded: (loaded.run.started_utc, loaded.run.run_id))
    newest = {_kind(loaded): _build_key(loaded) for loaded in in_order if loaded.path in folders}
    current = tuple(
        loaded for loaded in in_order if loaded.path in folders and newest[_kind(loaded)] == _build_key(loaded)
    )
    problems += [line for loaded in current for line in _lacks(loaded)]
    return Builds(current, tuple(_grouped(in_order, current)), tuple(problems), len(newest_first) - read)


def _folders(paths: Iterable[Path]) -> tuple[frozenset[Path], list[str]]:
    """Run folders at and below the paths, and what looks like one and is none, or that there are none."""
    wanted = check_folders(paths)
    try:
        folders, faults = find_runs(wanted)
    except ConfigError as error:
        return frozenset(), [error.what]
    return frozenset(folders), [f"{fault.path.name}: {fault.reason}" for fault in faults]


def _grouped(in_order: Sequence[LoadedRun], current: Sequence[LoadedRun]) -> Iterator[Build]:
    """All builds but the current runs, in the order in which they began."""
    shown = {loaded.run.run_id for loaded in current}
    builds: dict[tuple[str, ...], list[LoadedRun]] = {}
    for loaded in in_order:
        if loaded.run.run_id not in shown:
            builds.setdefault(_build_key(loaded), []).append(loaded)
    yield from map(tuple, builds.values())


def _kind(loaded: LoadedRun) -> tuple[str, str]:
    """Builds of one kind follow each other."""
    run = loaded.run
    # A run that ended before its board said anything has its name in the folder's only.
    board = run.board.name if run.board else loaded.path.name.partition("-")[2].removesuffix(f"-{run.run_id}")
    return board, run.plan.suite


def _build_key(loaded: LoadedRun) -> tuple[str, ...]:
    run = loaded.run
    pipeline = run.versions.get("pipeline")
    return ("run", run.run_id) if pipeline is None else ("pipeline", pipeline, *_kind(loaded))


def _lacks(loaded: LoadedRun) -> list[str]:
    damaged = {name: why.replace(f"{loaded.path}/", "") for name, why in loaded.damaged.items()}
    lacks = [f"{loaded.path.name}: {name} was left out: {why}" for name, why in damaged.items()]
    if loaded.run.abort_reason:
        lacks.append(f"{loaded.path.name}: the run was not completed: {loaded.run.abort_reason}")
    return lacks
