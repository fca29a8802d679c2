"""Which runs a report shows, and which are its history: the newest build of each board and suite, and all before it.

A build is all runs of one board and suite in a pipeline, or a single run without a pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, ResultError
from fsjoule.model import Run
from fsjoule.store.folder import board_name
from fsjoule.store.reader import LoadedRun, load_run, load_run_file
from fsjoule.store.run_folders import check_folders, find_runs

MOST: Final = 60

Build = tuple[LoadedRun, ...]
_Found = tuple[tuple[Path, Run], ...]


@dataclass(frozen=True, slots=True)
class Builds:
    """Runs in the order of time, the earlier ones as builds; `problems` has reasons, `left_out` counts older runs.

    `older` are folders of runs that were left out, but belong to the trends: as many builds of each board and suite.
    """

    current: tuple[LoadedRun, ...]
    earlier: tuple[Build, ...]
    problems: tuple[str, ...]
    left_out: int
    older: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        if not self.current:
            return "no run"
        newest = self.current[-1]
        what = build_name((newest,)) if len(self.current) == 1 else f"{len(self.current)} runs"
        return f"{what}, {newest.run.started_utc[:16].replace('T', ' ')}"


def build_name(build: Build) -> str:
    """A build's name beside its date: `k3v9q2`, with the commit under test if it is known."""
    newest = build[-1].run
    pipeline = newest.versions.get("pipeline", "")
    return f"{f'pipeline {pipeline}' if pipeline else newest.run_id} {newest.versions.get('commit', '')[:12]}".rstrip()


def read_builds(paths: Iterable[Path], *, history: Iterable[Path] = (), most: int = MOST) -> Builds:
    """Read the run folders of the `most` newest builds at and below `paths`; runs in `history` count as earlier.

    With a history all of `paths` are read, and the `most` newest builds of the history. Problems name damaged runs and
    missing parts. Raises ConfigError for a missing path, and for paths that contain other files but no run.
    """
    folders, problems = _folders(paths)
    old, more = _folders(history)
    # An empty history is no fault before the first build.
    problems += more if old else []
    found = _grouped(folders, problems)
    # A copy of a run is the same run; a current run is not history.
    known = {run.run_id for build in found for _, run in build}
    earlier = [tuple(one for one in build if one[1].run_id not in known) for build in _grouped(old, problems)]
    limited, rest = ([build for build in earlier if build], found) if old else (found, [])
    left_out = sum(map(len, limited[:-most]))
    builds = [loaded for build in _in_order([*limited[-most:], *rest]) if (loaded := _loaded(build, problems))]
    newest = {_kind(loaded.run, loaded.path): build for build in builds for loaded in build if loaded.path in folders}
    current = tuple(
        loaded
        for build in builds
        for loaded in build
        if loaded.path in folders and newest[_kind(loaded.run, loaded.path)] is build
    )
    shown = {loaded.run.run_id for loaded in current}
    for loaded in current:
        name = loaded.path.name
        for file, why in loaded.damaged.items():
            problems.append(f"{name}: {file} was left out: {why.replace(f'{loaded.path}/', '')}")
        problems += [f"{name}: {file} {what}" for file, what in loaded.altered().items()]
        if loaded.run.abort_reason:
            problems.append(f"{name}: the run was not completed: {loaded.run.abort_reason}")
    others = tuple(build for build in builds if shown.isdisjoint(loaded.run.run_id for loaded in build))
    return Builds(_by_time(current), others, tuple(problems), left_out, _newest_of_each(limited[:-most], most))


def _newest_of_each(left: Sequence[_Found], most: int) -> tuple[Path, ...]:
    """The folders of the `most` newest builds of each board and suite."""
    counts: Counter[tuple[str, str]] = Counter()
    folders: list[Path] = []
    for build in reversed(left):
        folder, run = build[0]
        counts[_kind(run, folder)] += 1
        if counts[_kind(run, folder)] <= most:
            folders += [each for each, _ in build]
    return tuple(folders)


def _folders(paths: Iterable[Path]) -> tuple[frozenset[Path], list[str]]:
    """Run folders at and below the paths, and problems. Raises ConfigError for paths with only other files."""
    wanted = check_folders(paths)
    try:
        folders, faults = find_runs(wanted)
    except ConfigError as error:
        if any(any(folder.iterdir()) for folder in wanted):
            raise
        return frozenset(), [error.what]
    return frozenset(folders), [f"{fault.path.name}: {fault.reason}" for fault in faults]


def _grouped(folders: Iterable[Path], problems: list[str]) -> list[_Found]:
    """The runs in these folders as builds, in order; unreadable runs are added to `problems`."""
    builds: dict[tuple[str, ...], dict[str, tuple[Path, Run]]] = {}
    for folder in sorted(folders, key=lambda folder: (folder.name, folder)):
        try:
            run = load_run_file(folder)
        except ResultError as error:
            problems.append(f"{folder.name}: {error.what}")
            continue
        pipeline = run.versions.get("pipeline")
        key = (run.run_id,) if pipeline is None else (pipeline, *_kind(run, folder))
        builds.setdefault(key, {}).setdefault(run.run_id, (folder, run))
    return _in_order([tuple(build.values()) for build in builds.values()])


def _in_order(builds: Iterable[_Found]) -> list[_Found]:
    """Sort by each build's first run: later runs may have waited longer for their board than a newer build."""
    return sorted(builds, key=lambda build: min((run.started_utc, run.run_id) for _, run in build))


def _loaded(build: _Found, problems: list[str]) -> Build:
    runs: list[LoadedRun] = []
    for folder, _ in build:
        try:
            runs.append(load_run(folder))
        except ResultError as error:
            problems.append(f"{folder.name}: {error.what}")
    return _by_time(runs)


def _by_time(runs: Iterable[LoadedRun]) -> Build:
    return tuple(sorted(runs, key=lambda loaded: (loaded.run.started_utc, loaded.run.run_id)))


def _kind(run: Run, folder: Path) -> tuple[str, str]:
    """Builds with the same board and suite have a common history."""
    return board_name(run, folder), run.plan.suite
