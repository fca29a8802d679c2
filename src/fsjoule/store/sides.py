"""A side of a comparison as a user names it, read directly from run folders or from an index.

Only a name of an index opens a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from fsjoule.errors import ConfigError, HostError, ObjectStoreError, ResultError
from fsjoule.model import Measurement, Run, RunStatus
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Point, Series, Side, Where
from fsjoule.store.folder import RUN_FILE
from fsjoule.store.objects.address import is_address, parse_address
from fsjoule.store.objects.cache import all_at_hand, at_hand
from fsjoule.store.points import RunPoints, read_points
from fsjoule.store.reader import load_run, load_run_file
from fsjoule.store.run_folders import FolderFault, find_runs, named_run
from fsjoule.store.selection import Selection, UnknownNameError, check_names, kernel_within

if TYPE_CHECKING:
    from fsjoule.store.index.database import Index

_AT: Final = "@"
# An index may have thousands of runs of a kernel; the newest name the programs.
_FILES_READ: Final = 100
# Whole runs take longer; more of them show their memory.
_RUNS_READ: Final = 6
# As many digits of a digest as git shows of a commit.
_DIGEST_SHOWN: Final = 12


class Sources:
    """An index, opened on demand, and run folders, each read once.

    An `Index` that is open already is the only source: no name is taken for a folder then, and
    no run is fetched from an object store.
    """

    def __init__(self, location: str | Index) -> None:
        self._location = location if isinstance(location, str) else location.name
        self._opened = ExitStack()
        self._index: _Indexed | None = None if isinstance(location, str) else _Indexed(location, fetches=False)
        self._takes_folders = isinstance(location, str)
        self._folders: dict[str, _Folders] = {}

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
            source, whole = self._named(what)
            selection = whole
        elif self._is_folder(what):
            raise ConfigError(f"{what} is a run folder, not a kernel within {place}", hint="write KERNEL@RUN")
        else:
            source, whole = self._named(place)
            selection = kernel_within(what, whole, source.booted(whole.where))
        source.check_names(where, whole.title)
        chosen = selection.where
        points = source.points(
            replace(where, runs=chosen.runs, kernels=chosen.kernels, branches=chosen.branches, invalid_too=True),
            metrics,
        )
        every = list(chain.from_iterable(points.values()))
        folders = source.folders(sorted({point.run_id for point in every}))
        steady = source.in_guest_time(folders)
        return Side(
            kind=selection.kind,
            name=_short(what, selection),
            title=selection.title,
            points=points,
            versions=_versions(source.runs(folders)),
            origins=frozenset(point.origin for point in every),
            steady=steady,
            guest_time=steady and _single_boots(points),
            folders=folders,
            damaged=source.damaged,
        )

    def _is_folder(self, text: str) -> bool:
        return self._takes_folders and _is_folder(text)

    def _named(self, text: str) -> tuple[_Source, Selection]:
        if self._is_folder(text):
            place = str(parse_address(text)) if is_address(text) else str(Path(text).resolve())
            if place not in self._folders:
                self._folders[place] = _Folders(text, place)
            return self._folders[place], self._folders[place].selection(text)
        try:
            source = self._opened_index(text)
            return source, source.selection(text)
        except (ResultError, UnknownNameError):
            folder = _run_here(text) if self._takes_folders else None
            if folder is None:
                raise
        return self._named(str(folder))

    def _opened_index(self, text: str) -> _Indexed:
        if self._index is None:
            # Importing a database's library takes as long as a comparison of folders, which needs none.
            from fsjoule.store.index.database import open_index  # noqa: PLC0415

            try:
                self._index = _Indexed(self._opened.enter_context(open_index(self._location)), fetches=True)
            except ResultError as error:
                if "/" in text and not Path(text).exists():
                    raise ResultError(f"there is no folder {text}", hint="list the runs: fsjoule runs") from error
                raise ResultError(f"{text} is not a run folder, and {error.what}", hint=error.hint) from error
        return self._index


class _Source(Protocol):
    """Runs with their points, read from folders or from an index."""

    @property
    def damaged(self) -> Mapping[str, str]: ...

    def booted(self, where: Where) -> list[tuple[str, Kernel]]:
        """The kernels of the runs that `where` selects, with their labels there."""
        ...

    def check_names(self, where: Where, title: str) -> None: ...

    def points(self, where: Where, metrics: tuple[Metric, ...]) -> dict[Series, tuple[Point, ...]]: ...

    def folders(self, run_ids: Sequence[str]) -> dict[str, Path]:
        """The folder of each run, newest run first."""
        ...

    def runs(self, folders: Mapping[str, Path]) -> Iterable[Run]:
        """The first few of these runs whose folders can be read."""
        ...

    def in_guest_time(self, folders: Mapping[str, Path]) -> bool:
        """Whether these few runs are of a board whose card takes no time, so that they have projections."""
        ...


class _Folders:
    """The runs at and below a folder; copies of one run are one run, each with what the others lack."""

    def __init__(self, text: str, place: str) -> None:
        folders, faults = find_runs(all_at_hand([Path(place)]))
        self._runs: dict[str, RunPoints] = {}
        self._points: dict[Series, dict[tuple[str, int], Point]] = {}
        parts: list[FolderFault] = []
        conflicts: list[FolderFault] = []
        for folder in folders:
            read = read_points(folder)
            if isinstance(read, FolderFault):
                faults.append(read)
                continue
            parts += read.damaged
            conflicts += self._add(read)
        self.damaged: dict[str, str] = {str(each.path): each.reason for each in (*faults, *parts, *conflicts)}
        if not self._points:
            raise _unmeasured(text, [*faults, *parts, *conflicts])

    def _add(self, read: RunPoints) -> list[FolderFault]:
        known = self._runs.get(read.run.run_id)
        if known is not None and (difference := _difference(known, read)) is not None:
            what = f"{known.loaded.path} has a run {read.run.run_id} with another {difference}"
            return [FolderFault(read.loaded.path, what)]
        for series, point in read.points:
            self._points.setdefault(series, {}).setdefault((point.run_id, point.number), point)
        # An unfinished copy was made during the run.
        if known is None or read.run.status is RunStatus.COMPLETE or known.run.status is not RunStatus.COMPLETE:
            self._runs[read.run.run_id] = read
        return []

    def selection(self, text: str) -> Selection:
        measured = {run_id for points in self._points.values() for run_id, _ in points}
        one = next(iter(measured))
        title = f"run {one}" if len(measured) == 1 else f"{len(measured)} runs of {text}"
        return Selection("run", title, Where())

    def booted(self, where: Where) -> list[tuple[str, Kernel]]:
        del where  # of all runs
        return [each for read in self._runs.values() for each in read.kernels.items()]

    def check_names(self, where: Where, title: str) -> None:
        branches = [read.run.versions.get("branch") for read in self._runs.values()]
        check_names(where, title, self._points, branches)

    def points(self, where: Where, metrics: tuple[Metric, ...]) -> dict[Series, tuple[Point, ...]]:
        found: dict[Series, tuple[Point, ...]] = {}
        for series in sorted(filter(where.takes_series, self._points), key=lambda one: one.rank):
            taken = filter(where.takes, self._points[series].values())
            points = sorted(taken, key=lambda point: (point.started_utc, point.run_id, point.number))
            if points:
                found[series] = tuple(_only(point, metrics) for point in points)
        return found

    def folders(self, run_ids: Sequence[str]) -> dict[str, Path]:
        runs = sorted((self._runs[each] for each in run_ids), key=lambda read: read.run.started_utc, reverse=True)
        return {read.run.run_id: read.loaded.path for read in runs}

    def runs(self, folders: Mapping[str, Path]) -> Iterable[Run]:
        return [self._runs[run_id].run for run_id in [*folders][:_FILES_READ]]

    def in_guest_time(self, folders: Mapping[str, Path]) -> bool:
        return len(folders) <= _RUNS_READ and _projected(self._runs[each].loaded.measurements for each in folders)


class _Indexed:
    """The runs of an index, whose folders may be gone, or in an object store."""

    damaged: Mapping[str, str] = {}

    def __init__(self, index: Index, *, fetches: bool) -> None:
        # As above; here also because whoever has no index need not have its library.
        from fsjoule.store.index import queries, selection  # noqa: PLC0415

        self._index = index
        self._fetches = fetches
        self._queries, self._names = queries, selection

    def selection(self, text: str) -> Selection:
        return self._names.resolve(self._index, text)

    def booted(self, where: Where) -> list[tuple[str, Kernel]]:
        return self._names.booted(self._index, where)

    def check_names(self, where: Where, title: str) -> None:
        del title  # whatever the side, its names are the index's
        self._queries.check_names(self._index, where)

    def points(self, where: Where, metrics: tuple[Metric, ...]) -> dict[Series, tuple[Point, ...]]:
        return self._queries.points(self._index, where, metrics=metrics)

    def folders(self, run_ids: Sequence[str]) -> dict[str, Path]:
        return self._queries.run_folders(self._index, run_ids)

    def runs(self, folders: Mapping[str, Path]) -> Iterable[Run]:
        for folder in [*folders.values()][:_FILES_READ]:
            # An index may know runs whose folders have been moved or removed.
            with suppress(ResultError):
                yield load_run_file(folder)

    def in_guest_time(self, folders: Mapping[str, Path]) -> bool:
        if len(folders) > _RUNS_READ or (not self._fetches and any(map(is_address, folders.values()))):
            return False
        try:
            return _projected([load_run(at_hand(folder)).measurements for folder in folders.values()])
        except (ConfigError, HostError, ObjectStoreError, ResultError):  # no keys, no room for a copy
            return False


def _difference(known: RunPoints, read: RunPoints) -> str | None:
    """How two copies of a run differ, other than by what one of them lacks; None if they do not."""
    one, other = known.run, read.run
    if (one.started_utc, one.simulated, one.plan) != (other.started_utc, other.simulated, other.plan):
        return "time of start or plan"
    if one.status is RunStatus.COMPLETE and other.status is RunStatus.COMPLETE and one != other:
        return "run.json"
    numbers = {point.number: (series, point) for series, point in known.points}
    others = [
        point.number for series, point in read.points if numbers.get(point.number, (series, point)) != (series, point)
    ]
    return f"measurement {', '.join(map(str, others))}" if others else None


def _only(point: Point, metrics: tuple[Metric, ...]) -> Point:
    if len(metrics) == len(Metric):
        return point
    return point._replace(figures={metric: point.figures[metric] for metric in metrics if metric in point.figures})


def _unmeasured(text: str, faults: Sequence[FolderFault]) -> ConfigError:
    """The error of a folder without a measurement that can be read."""
    if not faults:
        return ConfigError(f"{text} has no measurement", hint="fsjoule show says why")
    first, *others = faults
    more = f" (and {len(others)} more)" if others else ""
    what = f"{text} has no measurement that can be read: {first.path.name}: {first.reason}{more}"
    return ConfigError(what, hint="restore it from a copy")


def _versions(runs: Iterable[Run]) -> dict[str, frozenset[str]]:
    """Those of programs, and of cards by what they are made of: two computers may make different ones of that."""
    versions: dict[str, set[str]] = {}
    for run in runs:
        cards = {
            f"the card with {image.kernel_package} and {image.root_filesystem}": image.card_sha256[:_DIGEST_SHOWN]
            for image in run.images
            if image.kernel_package
        }
        for name, version in {**run.versions, **cards}.items():
            versions.setdefault(name, set()).add(version)
    return {name: frozenset(several) for name, several in versions.items()}


def _single_boots(points: Mapping[Series, Sequence[Point]]) -> bool:
    boots = (len({(point.run_id, point.kernel, point.boot) for point in group}) for group in points.values())
    return all(count == 1 for count in boots)


def _projected(runs: Iterable[Sequence[Measurement]]) -> bool:
    several = list(runs)
    return bool(several) and all(any(one.projected for one in measurements) for measurements in several)


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


def _short(what: str, selection: Selection) -> str:
    if selection.kind == "run":
        return selection.title.removeprefix("run ")
    return what.removeprefix(f"{selection.kind}:")
