"""Imports run folders into an index. Folders are the truth: a second import changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from sqlalchemy import select

from fsjoule.store.files import Watcher, unwatched
from fsjoule.store.index.database import Index
from fsjoule.store.index.run_rows import ReadRun, read_run
from fsjoule.store.index.schema import runs
from fsjoule.store.index.states import bring_back, import_states
from fsjoule.store.index.writer import Writer, Written, portions, remove_runs
from fsjoule.store.run_folders import FolderFault, beside_runs, check_folders, find_runs
from fsjoule.store.states import FOLDER

# Large enough that commits cost little, small enough that other writers wait for less than a second.
_BATCH_MEASUREMENTS: Final = 2000
NO_COPIES: Final[Mapping[Path, str]] = MappingProxyType({})


@dataclass
class ImportReport(Written):
    """The results of an import.

    `damaged_runs` were skipped, and `damaged_measurements` left out of their runs. `damaged_states` were skipped, too.
    `dropped` names runs that a rebuild did not find again.
    """

    folders: int = 0
    damaged_runs: list[FolderFault] = field(default_factory=list[FolderFault])
    damaged_measurements: list[FolderFault] = field(default_factory=list[FolderFault])
    damaged_states: list[str] = field(default_factory=list[str])
    dropped: list[str] = field(default_factory=list[str])


def import_runs(
    index: Index,
    paths: Iterable[Path],
    *,
    known_as: Mapping[Path, str] = NO_COPIES,
    watch: Watcher = unwatched,
    pruned_too: bool = False,
) -> ImportReport:
    """Import all run folders at and below `paths`, and the states beside them; known measurements are left unchanged.

    Copies of one run from any machine are one run: each may add measurements that others lack. `known_as` has the
    addresses of folders that are copies for the time of the import. Runs that were pruned stay so unless `pruned_too`.
    `watch` gets the folders that were read.
    Raises ConfigError for a path that is missing or has no run below it, HostError if the index cannot be written; runs
    of earlier batches are then whole in it.
    """
    return _import(index, _results(paths), set(), watch, known_as=known_as, pruned_too=pruned_too)


def rebuild(
    index: Index,
    paths: Iterable[Path],
    *,
    known_as: Mapping[Path, str] = NO_COPIES,
    watch: Watcher = unwatched,
    pruned_too: bool = False,
) -> ImportReport:
    """Make the index equal to the run folders at and below `paths`.

    Others can read and write it meanwhile; their additions are kept. After an interruption each run is in its old or
    its new state. Raises as `import_runs` does.
    """
    there = _results(paths)
    with index.reading() as connection:
        gone = set(connection.execute(select(runs.c.run_id)).scalars())
    report = _import(index, there, gone, watch, known_as=known_as, pruned_too=pruned_too)
    report.dropped = sorted(gone)
    for run_ids in portions(report.dropped):
        with index.writing() as connection:
            remove_runs(connection, run_ids)
    return report


class _Results(NamedTuple):
    """Run folders, folders of states beside them, and what is wrong with some."""

    runs: list[Path]
    states: list[Path]
    faults: list[FolderFault]


def _results(paths: Iterable[Path]) -> _Results:
    paths = list(paths)
    folders, faults = find_runs(paths)
    return _Results(folders, beside_runs(FOLDER, check_folders(paths), folders), faults)


def _import(
    index: Index,
    there: _Results,
    replacing: set[str],
    watch: Watcher,
    *,
    known_as: Mapping[Path, str],
    pruned_too: bool,
) -> ImportReport:
    """Import, and remove the imported runs from `replacing`."""
    report = ImportReport(folders=len(there.runs), damaged_runs=there.faults)
    report.damaged_states = import_states(index, there.states)
    writer = Writer()
    for batch in _batches(there.runs, report, known_as, watch):
        if pruned_too:
            bring_back(index, [read.run_id for read in batch])
        with index.writing() as connection:
            written = writer.write(connection, batch, replacing)
        replacing.difference_update(read.run_id for read in batch)
        report.new += written.new
        report.changed += written.changed
        report.unchanged += written.unchanged
        report.pruned += written.pruned
        report.measurements += written.measurements
        report.conflicts += written.conflicts
    return report


def _batches(
    folders: list[Path], report: ImportReport, known_as: Mapping[Path, str], watch: Watcher
) -> Iterator[list[ReadRun]]:
    """Read folders in batches; two copies of a run go into two batches."""
    batch: dict[str, ReadRun] = {}
    waiting = 0
    for done, folder in enumerate(folders, start=1):
        read = read_run(folder, known_as.get(folder))
        if isinstance(read, FolderFault):
            report.damaged_runs.append(read)
        else:
            report.damaged_measurements += read.damaged
            if read.run_id in batch or waiting >= _BATCH_MEASUREMENTS:
                yield list(batch.values())
                batch, waiting = {}, 0
            batch[read.run_id] = read
            waiting += len(read.measurements)
        watch(done, len(folders))
    if batch:
        yield list(batch.values())
