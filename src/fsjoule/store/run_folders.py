"""Finds run folders at and below folders, and the run that a user names.

A name is a folder or an address, the start of a run's id, `last`, or nothing, which is the newest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from fsjoule.errors import ConfigError, ResultError
from fsjoule.host.plaintext import is_plain, plain_line
from fsjoule.store.folder import FETCHED, MEASUREMENTS_FOLDER, RUN_FILE, RUN_NAME
from fsjoule.store.objects.address import is_address
from fsjoule.store.objects.cache import all_at_hand, at_hand
from fsjoule.store.reader import load_run_file

RESULTS: Final = Path("results")
LAST: Final = "last"
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class FolderFault:
    path: Path
    reason: str


def find_runs(paths: Iterable[Path]) -> tuple[list[Path], list[FolderFault]]:
    """The run folders at and below `paths`, sorted by name, and faults. Raises ConfigError if there is none."""
    folders = check_folders(paths)
    runs, faults = runs_below(folders)
    if not runs and not faults:
        where = ", ".join(map(str, folders)) or "(no path)"
        raise ConfigError(f"there is no run folder at or below {where}", hint="give the folder that --results named")
    return runs, faults


def runs_below(paths: Iterable[Path]) -> tuple[list[Path], list[FolderFault]]:
    """As `find_runs`, where folders without a run are right too. Raises ConfigError if one is missing."""
    runs: dict[Path, None] = {}
    faults: list[FolderFault] = []
    for path in check_folders(paths):
        for folder in _walk(path.resolve(), faults):
            runs[folder] = None
    return sorted(runs, key=lambda folder: (folder.name, folder)), faults


def beside_runs(name: str, paths: Iterable[Path], runs: Iterable[Path]) -> list[Path]:
    """The folders of this name in `paths` and beside `runs`. Links are not followed, because they may lead anywhere."""
    tops = {path.resolve() for path in paths} | {run.parent.resolve() for run in runs}
    return [folder for top in sorted(tops) if (folder := top / name).is_dir() and not folder.is_symlink()]


def check_folders(paths: Iterable[Path]) -> list[Path]:
    """The folders that `paths` name; a run.json means its folder. Raises ConfigError if one is missing."""
    folders = [path.parent if path.name == RUN_FILE else path for path in paths]
    for path in folders:
        if not path.is_dir():
            raise ConfigError(f"{path} is not a folder", hint="give run folders, or folders that contain some")
    return folders


def _walk(top: Path, faults: list[FolderFault]) -> Iterator[Path]:
    """Run folders at and below `top`, without looking inside run folders or following links."""

    def unreadable(error: OSError) -> None:
        faults.append(FolderFault(Path(error.filename), f"it cannot be read: {error.strerror}"))

    for folder, below, files in os.walk(top, onerror=unreadable):
        below[:] = [name for name in below if not name.startswith(FETCHED)]
        if not is_plain(folder):
            below.clear()
            faults.append(
                FolderFault(
                    Path(plain_line(folder)), "its name contains control characters, or is not UTF-8: rename it"
                )
            )
        elif RUN_FILE in files:
            below.clear()
            yield Path(folder)
        elif MEASUREMENTS_FOLDER in below:
            below.clear()
            faults.append(FolderFault(Path(folder), f"it has no {RUN_FILE}"))


class NamedRun(NamedTuple):
    """A run folder, by the time of its start (`20260309T100000Z`)."""

    started: str
    run_id: str
    path: Path


def newest_first(folders: Iterable[Path]) -> list[NamedRun]:
    """The runs at and below these folders. Raises ConfigError if one of the folders is missing."""
    return sorted(map(_found, runs_below(folders)[0]), reverse=True)


def named_run(name: str | Path | None = None, results: Path = RESULTS) -> Path:
    """The run folder that a user names; that of an object store is a copy.

    `name` is a folder, an address, the start of a run's id or of its folder's name in `results`, or `last`; None is the
    newest run, too. What has a slash or is there is taken as a folder. Raises ConfigError if there is no such run, or
    if several ids start so; and as `at_hand` does.
    """
    text = LAST if name is None else str(name)
    if is_address(text):
        return at_hand(Path(text))
    path = Path(text)
    if path.name == RUN_FILE or (path / RUN_FILE).exists():
        return path
    if name is not None and text != LAST and ("/" in text or path.exists()):
        return path  # whoever reads it says what is wrong with it
    runs = newest_first([results]) if results.is_dir() else []
    if not runs and text == LAST:
        raise ConfigError(f"there is no run in {results}", hint="name a run folder, or measure: fsjoule bench")
    if text == LAST:
        return runs[0].path
    matching = [run for run in runs if text and (run.run_id.startswith(text) or run.path.name.startswith(text))]
    if len(matching) == 1 or any(text in (run.run_id, run.path.name) for run in matching):
        exact = (run for run in matching if text in (run.run_id, run.path.name))
        return next(exact, matching[0]).path
    if matching:
        more = f" and {len(matching) - _SHOWN} more" if len(matching) > _SHOWN else ""
        names = ", ".join(f"{run.run_id} ({run.path.name})" for run in matching[:_SHOWN])
        raise ConfigError(
            f"{text!r} names {len(matching)} runs in {results}", hint=f"write more of the id: {names}{more}"
        )
    hint = "list the runs: fsjoule runs"
    raise ResultError(f"{text} is not a run folder, and no run's id in {results} starts so", hint=hint)


def named_folders(names: Iterable[str | Path]) -> list[Path]:
    """Run folders, or folders that contain some, that a user has named; runs also as `named_run` finds them."""
    folders: list[Path] = []
    for name in names:
        known = is_address(name) or Path(name).exists() or Path(name) == RESULTS
        folders += all_at_hand([Path(name)]) if known else [named_run(name)]
    return folders


def _found(folder: Path) -> NamedRun:
    """The run of a folder, by the folder's name if that is one of ours."""
    parts = RUN_NAME.fullmatch(folder.name)
    if parts is not None:
        return NamedRun(parts[1], folder.name.rpartition("-")[2], folder)
    try:
        run = load_run_file(folder)
    except ResultError:
        return NamedRun("", "", folder)  # who reads it says what is wrong
    return NamedRun(run.started_utc.replace("-", "").replace(":", ""), run.run_id, folder)
