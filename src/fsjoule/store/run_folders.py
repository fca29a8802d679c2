"""Finds run folders at and below folders, and names those that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fsjoule.errors import ConfigError
from fsjoule.host.plaintext import is_plain, plain_line
from fsjoule.store.folder import FETCHED, MEASUREMENTS_FOLDER, RUN_FILE


@dataclass(frozen=True, slots=True)
class Fault:
    path: Path
    reason: str


def find_runs(paths: Iterable[Path]) -> tuple[list[Path], list[Fault]]:
    """The run folders at and below `paths`, sorted by name, and faults. Raises ConfigError if there is none."""
    wanted = check_folders(paths)
    found, faults = runs_below(wanted)
    if not found and not faults:
        where = ", ".join(map(str, wanted)) or "(no path)"
        raise ConfigError(f"there is no run folder at or below {where}", hint="give the folder that --results named")
    return found, faults


def runs_below(paths: Iterable[Path]) -> tuple[list[Path], list[Fault]]:
    """As `find_runs`, where folders without a run are right too. Raises ConfigError if one is missing."""
    found: dict[Path, None] = {}
    faults: list[Fault] = []
    for path in check_folders(paths):
        for folder in _walk(path.resolve(), faults):
            found[folder] = None
    return sorted(found, key=lambda folder: (folder.name, folder)), faults


def check_folders(paths: Iterable[Path]) -> list[Path]:
    """The folders that `paths` name; a run.json means its folder. Raises ConfigError if one is missing."""
    wanted = [path.parent if path.name == RUN_FILE else path for path in paths]
    for path in wanted:
        if not path.is_dir():
            raise ConfigError(f"{path} is not a folder", hint="give run folders, or folders that contain some")
    return wanted


def _walk(top: Path, faults: list[Fault]) -> Iterator[Path]:
    """Run folders at and below `top`, without looking inside run folders or following links."""

    def unreadable(error: OSError) -> None:
        faults.append(Fault(Path(error.filename), f"it cannot be read: {error.strerror}"))

    for folder, below, files in os.walk(top, onerror=unreadable):
        below[:] = [name for name in below if not name.startswith(FETCHED)]
        if not is_plain(folder):
            below.clear()
            faults.append(
                Fault(Path(plain_line(folder)), "its name contains control characters, or is not UTF-8: rename it")
            )
        elif RUN_FILE in files:
            below.clear()
            yield Path(folder)
        elif MEASUREMENTS_FOLDER in below:
            below.clear()
            faults.append(Fault(Path(folder), f"it has no {RUN_FILE}"))
