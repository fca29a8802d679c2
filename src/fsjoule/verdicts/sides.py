"""A side of a comparison as a user names it, read from an index or directly from run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from fsjoule.errors import ConfigError, LabError, ObjectStoreError, ResultError
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Origin, Point, Series, Where
from fsjoule.store.folder import RUN_FILE
from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.defaults import DEFAULT_NAME
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import check_names, points, run_folders
from fsjoule.store.index.selection import Selection, UnknownNameError, resolve, resolve_kernel
from fsjoule.store.objects.address import is_address, parse_address
from fsjoule.store.objects.cache import all_at_hand, at_hand
from fsjoule.store.reader import load_run, load_run_file
from fsjoule.store.run_folders import Fault, named_run

_AT: Final = "@"
# An index may have thousands of runs of a kernel; the newest name the programs.
_FILES_READ: Final = 100
# Whole runs take longer; more of them show their memory.
_RUNS_READ: Final = 6


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: all its measurements by series, invalid ones too, in the order of time.

    `name` is the user's name without its `kind`; `title` describes the side. `versions` are versions of programs by
    name, as far as the runs' folders are present; `origins` are places and meters of its runs. `steady` says that its
    few runs were on a board in guest time, `guest_time` that each series has a single boot besides. `folders` are those
    of its runs at their last import.
    """

    kind: str
    name: str
    title: str
    points: Mapping[Series, tuple[Point, ...]]
    versions: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    origins: frozenset[Origin] = frozenset()
    steady: bool = False
    guest_time: bool = False
    folders: Mapping[str, Path] = field(default_factory=dict[str, Path])


class Sources:
    """An index, opened on demand, and run folders, each read once; `damaged` names their damaged parts.

    An `Index` that is open already is the only source: no name is taken for a folder then, and
    no run is fetched from an object store.
    """

    def __init__(self, location: str | Index) -> None:
        self._location = location if isinstance(location, str) else location.name
        self._opened = ExitStack()
        self._index: Index | None = None if isinstance(location, str) else location
        self._takes_folders = self._fetches = isinstance(location, str)
        self._folders: dict[str, Index] = {}
        self.damaged: list[Fault] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._opened.close()

    def side(self, text: str, where: Where, metrics: tuple[Metric, ...], *, within: str | None = None) -> Side:
        """The measurements that `text` names and `where` selects, with these figures.

        `text` is a run folder (or one with runs below it, or an address of either), a run, kernel or branch of the
        index, or else a run as `named_run` finds it. A kernel within a run, a folder or a branch is `KERNEL@PLACE`, or
        `text` alone with the place in `within`. Raises ConfigError for an unknown name, and as opening an index and
        fetching a run do.
        """
        what, at, place = text.partition(_AT)
        if self._is_folder(text) or not at:
            what, place = text, within or ""
        if not place:
            index, found = self._named(what)
            whole = found
        elif self._is_folder(what):
            raise ConfigError(f"{what} is a run folder, not a kernel within {place}", hint="write KERNEL@RUN")
        else:
            index, whole = self._named(place)
            found = resolve_kernel(index, what, whole)
        # A folder's own index has its runs only.
        check_names(index, where, "the index" if index is self._index else whole.title)
        narrowed = replace(
            where, runs=found.where.runs, kernels=found.where.kernels, branches=found.where.branches, invalid_too=True
        )
        read = points(index, narrowed, metrics=metrics)
        found_points = list(chain.from_iterable(read.values()))
        folders = run_folders(index, sorted({point.run_id for point in found_points}))
        versions = _versions(list(folders.values()))
        origins = frozenset(point.origin for point in found_points)
        steady = _in_guest_time(folders, fetches=self._fetches)
        single = steady and _single_boots(read)
        return Side(found.kind, _short(what, found), found.title, read, versions, origins, steady, single, folders)

    def _is_folder(self, text: str) -> bool:
        return self._takes_folders and _is_folder(text)

    def _named(self, text: str) -> tuple[Index, Selection]:
        if self._is_folder(text):
            index, runs = self._read(text)
            title = f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs of {text}"
            return index, Selection("run", title, Where())
        try:
            index = self._opened_index(text)
            return index, resolve(index, text)
        except (ResultError, UnknownNameError):
            folder = _run_here(text) if self._takes_folders else None
            if folder is None:
                raise
        return self._named(str(folder))

    def _opened_index(self, text: str) -> Index:
        if self._index is None:
            try:
                self._index = self._opened.enter_context(open_index(self._location))
            except ResultError as error:
                if "/" in text and not Path(text).exists():
                    raise ResultError(f"there is no folder {text}", hint="list the runs: fsjoule runs") from error
                raise ResultError(f"{text} is not a run folder, and {error.what}", hint=error.hint) from error
        return self._index

    def _read(self, text: str) -> tuple[Index, tuple[str, ...]]:
        """A temporary index of the runs at and below a folder, and their ids."""
        place = str(parse_address(text)) if is_address(text) else str(Path(text).resolve())
        if place not in self._folders:
            temporary = Path(self._opened.enter_context(TemporaryDirectory(prefix="fsjoule-")))
            index = self._opened.enter_context(open_index(temporary / DEFAULT_NAME, create=True))
            report = import_runs(index, all_at_hand([Path(place)]))
            faults = [*report.damaged_runs, *report.damaged_measurements, *report.conflicts]
            if not report.measurements:
                raise _unmeasured(text, faults)
            self.damaged += faults
            self._folders[place] = index
        index = self._folders[place]
        found = points(index, Where(invalid_too=True), metrics=())
        return index, tuple(sorted({point.run_id for group in found.values() for point in group}))


def _unmeasured(text: str, faults: Sequence[Fault]) -> ConfigError:
    """The error of a folder without a measurement that can be read."""
    if not faults:
        return ConfigError(f"{text} has no measurement", hint="fsjoule show says why")
    first, *others = faults
    more = f" (and {len(others)} more)" if others else ""
    what = f"{text} has no measurement that can be read: {first.path.name}: {first.reason}{more}"
    return ConfigError(what, hint="restore it from a copy")


def _versions(folders: Sequence[Path]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for folder in folders[:_FILES_READ]:
        # An index may know runs whose folders have been moved or removed.
        with suppress(ResultError):
            for name, version in load_run_file(folder).versions.items():
                found.setdefault(name, set()).add(version)
    return {name: frozenset(versions) for name, versions in found.items()}


def _single_boots(read: Mapping[Series, Sequence[Point]]) -> bool:
    boots = (len({(point.run_id, point.kernel, point.boot) for point in group}) for group in read.values())
    return all(count == 1 for count in boots)


def _in_guest_time(folders: Mapping[str, Path], *, fetches: bool) -> bool:
    """Whether these few runs are of a board whose card takes no time, so that they have projections."""
    if len(folders) > _RUNS_READ:
        return False
    if not fetches and any(map(is_address, folders.values())):
        return False
    try:
        found = [load_run(at_hand(folder)).measurements for folder in folders.values()]
    except (ConfigError, LabError, ObjectStoreError, ResultError):  # no keys, no room for a copy
        return False
    return bool(found) and all(any(m.projected for m in measurements) for measurements in found)


def _is_folder(text: str) -> bool:
    """Whether `text` is a run folder, a folder written with a slash, or an address; names of the index come first."""
    path = Path(text)
    return (
        is_address(text)
        or (path / RUN_FILE).is_file()
        or (path.name == RUN_FILE and path.is_file())
        or ("/" in text and path.is_dir())
    )


def _run_here(text: str) -> Path | None:
    """The folder of the run in `results` whose id starts so, or of the newest one for `last`; None for other names."""
    name = text.removeprefix("run:")
    if "/" in name or ":" in name or Path(name).exists():
        return None
    try:
        return named_run(name)
    except ResultError:
        return None


def _short(what: str, found: Selection) -> str:
    if found.kind == "run":
        return found.title.removeprefix("run ")
    return what.removeprefix(f"{found.kind}:")
