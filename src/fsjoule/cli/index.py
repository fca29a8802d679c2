"""`fsjoule index`: the database of all runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import BoardNames, Filesystems, Json, Remove, Wide, age, out, print_json, progress, progress_bar
from fsjoule.errors import ConfigError, ResultError
from fsjoule.model.labels import counted, listed
from fsjoule.model.metrics import Metric, Use, fio_metrics, held_metrics, timed_metrics
from fsjoule.model.series import Order, Point, Series, Where
from fsjoule.report.numbers import ABSENT
from fsjoule.store.index.defaults import DEFAULT_NAME, VARIABLE

if TYPE_CHECKING:
    from fsjoule.store.index.database import Index
    from fsjoule.store.index.importer import ImportReport
    from fsjoule.store.index.queries import SeriesCount
    from fsjoule.store.index.retention import Pruning, Retention
    from fsjoule.store.run_folders import FolderFault

_METRIC = f"Figure to show; may be repeated: {', '.join(Metric)}."
_FOLDERS = "Runs, folders that contain some, or s3://BUCKET/PREFIX."
app = typer.Typer(no_args_is_help=True, help="Keep an index of all runs: a database made from run folders.")

RESULTS: Final = Path("results")
_SHOWN_FAULTS: Final = 20
_SHOWN_RUNS: Final = 20
# Nobody reads more, and the answer takes as long in an index of ten million.
_LIMIT: Final = 1000
_SHORT_KEY: Final = 8

Location = Annotated[
    str,
    typer.Option(
        "--index",
        metavar="URL",
        envvar=VARIABLE,
        help="The index: a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
    ),
]
PrunedToo = Annotated[
    bool,
    typer.Option("--pruned-too", help="Bring back runs that were pruned from the index, if their folders are here."),
]
DEFAULT_LOCATION: Final = str(RESULTS / DEFAULT_NAME)


@app.command("rebuild")
def rebuild(
    folders: Annotated[list[Path] | None, typer.Argument(help=_FOLDERS)] = None,
    index: Location = DEFAULT_LOCATION,
    pruned_too: PrunedToo = False,
    json_output: Json = False,
) -> None:
    """Make the index equal to the run folders, and create it if needed.

    The default folder is results. Runs whose folders are gone are dropped from the index.

    Example: fsjoule index rebuild results copied/from/another/machine
    """
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.importer import rebuild as rebuild_index

    wanted = _wanted(folders or [RESULTS])  # before an index is made for nothing
    if wanted.faults:
        raise ResultError(
            f"{counted(len(wanted.faults), 'run')} cannot be fetched: {wanted.faults[0].reason}",
            hint="a rebuild would drop them from the index",
        )
    with open_index(index, create=True) as opened, progress_bar("run folders") as watch:
        report = rebuild_index(opened, wanted.folders, known_as=wanted.addresses, watch=watch, pruned_too=pruned_too)
    _show_import(report, index, json_output=json_output)


@app.command("import")
def import_(
    folders: Annotated[list[Path], typer.Argument(help=_FOLDERS)],
    index: Location = DEFAULT_LOCATION,
    pruned_too: PrunedToo = False,
    json_output: Json = False,
) -> None:
    """Add runs to the index. Runs that it already has change nothing.

    A run copied from another machine stays one run, however often it is imported.

    Example: fsjoule index import results --index postgresql://lab@db.example.org/fsjoule
    """
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.importer import ImportReport, import_runs

    wanted = _wanted(folders)
    with open_index(index, create=True) as opened, progress_bar("run folders") as watch:
        # There may be nothing but damaged runs of an object store.
        report = (
            import_runs(opened, wanted.folders, known_as=wanted.addresses, watch=watch, pruned_too=pruned_too)
            if wanted.folders
            else ImportReport()
        )
    report.folders += len(wanted.faults)
    report.damaged_runs += wanted.faults
    _show_import(report, index, json_output=json_output)


@app.command("prune")
def prune(
    *,
    keep: Annotated[str, typer.Option("--keep", metavar="AGE", help="Keep runs up to this age: 90d, 12w or 2y.")],
    keep_branch: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-branch",
            metavar="BRANCH[=AGE]",
            help="Keep runs of this branch longer, or for ever; may be repeated.",
        ),
    ] = None,
    remove: Remove = False,
    index: Location = DEFAULT_LOCATION,
    json_output: Json = False,
) -> None:
    """Remove old runs from the index; run folders are not touched.

    References, and runs of changes that were confirmed, explained, bisected or accepted, stay at any age.

    Example: fsjoule index prune --keep 30d --keep-branch main=2y, then the same with --remove
    """
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.retention import Retention, planned
    from fsjoule.store.index.retention import prune as prune_index

    since_utc = _since("--keep", keep)
    kept: dict[str, str] = {}
    for each in keep_branch or []:
        branch, equals, kept_for = each.partition("=")
        if not branch:
            raise ConfigError(f"--keep-branch {each!r} names no branch", hint="write --keep-branch main or main=2y")
        kept[branch] = _since("--keep-branch", kept_for) if equals else ""
    wanted = Retention(since_utc, kept)
    with open_index(index) as opened, progress_bar("runs") as watch:
        found = prune_index(opened, wanted, watch=watch) if remove else planned(opened, wanted)
    _show_pruning(found, wanted, removed=remove, json_output=json_output)


@app.command("create")
def create(index: Location = DEFAULT_LOCATION) -> None:
    """Make an empty index.

    Importing and rebuilding do this too, where they may: on PostgreSQL the tables belong to whoever makes them.

    Example: fsjoule index create --index postgresql://fsjoule_owner@db.example.org/fsjoule
    """
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.queries import stats as index_stats

    with open_index(index, create=True) as opened:
        out.print(
            f"schema {index_stats(opened).schema}  {_plain(index)}", soft_wrap=True, markup=False, highlight=False
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Wanted:
    """Folders to import; those of an object store are copies, with their `addresses`. `faults` could not be fetched."""

    folders: list[Path]
    addresses: dict[Path, str]
    faults: list[FolderFault]


def _wanted(paths: Sequence[Path]) -> _Wanted:
    """The folders that a user has named, after those of an object store were fetched. Raises ConfigError."""
    from fsjoule.store.objects.address import is_address, parse_address
    from fsjoule.store.objects.cache import copies
    from fsjoule.store.objects.documents import states_copy
    from fsjoule.store.run_folders import FolderFault, check_folders, named_folders

    here = check_folders(named_folders(path for path in paths if not is_address(path)))
    wanted = _Wanted(here, {}, [])
    for address in [parse_address(path) for path in paths if is_address(path)]:
        if address.run is None:
            states, left_out = states_copy(address)
            wanted.folders.append(states)
            for fault in left_out:
                progress(f"left out: {fault}")
        with progress_bar("runs fetched") as watch:
            made = copies(address, documents=True, watch=watch)
        for copy in made:
            if copy.problem is None:
                folder = copy.folder.resolve()
                wanted.folders.append(folder)
                wanted.addresses[folder] = str(copy.address)
            else:
                wanted.faults.append(FolderFault(Path(copy.folder.name), copy.problem.in_a_line))
    return wanted


@app.command("stats")
def stats(index: Location = DEFAULT_LOCATION, json_output: Json = False) -> None:
    """Show how much the index holds, and which kernels.

    Example: fsjoule index stats --json
    """
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.queries import stats as index_stats

    with open_index(index) as opened:
        held = index_stats(opened)
    if json_output:
        print_json({**dataclasses.asdict(held), "kernels": [dataclasses.asdict(kernel) for kernel in held.kernels]})
        return
    out.print(
        f"{counted(held.measurements, 'measurement')}, {held.valid} of them valid, "
        f"of {held.series} series on {counted(held.boards, 'board')}"
        f"\n{counted(held.runs, 'run')}, from {held.first_utc or ABSENT} to {held.last_utc or ABSENT}"
        f"\nkernels, oldest first: {', '.join(kernel.label for kernel in held.kernels) or ABSENT}",
        highlight=False,
        markup=False,
    )


@app.command("series")
def series(
    *,
    key: Annotated[str | None, typer.Argument(help="A series, by its key or the start of it.")] = None,
    index: Location = DEFAULT_LOCATION,
    by: Annotated[Order, typer.Option("--by", help="Order of the points.")] = Order.TIME,
    metric: Annotated[list[Metric] | None, typer.Option("--metric", help=_METRIC)] = None,
    of: Annotated[str | None, typer.Option("--of", help="Only measurements of this run, kernel or branch.")] = None,
    board: BoardNames = None,
    fs: Filesystems = None,
    with_invalid: Annotated[bool, typer.Option("--all", help="Also show invalid measurements.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Show at most this many figures, the newest; 0: all.")] = _LIMIT,
    wide: Wide = False,
    json_output: Json = False,
) -> None:
    """List all series, or the figures of one. Lists take commas, and may be repeated.

    Example: fsjoule index series; fsjoule index series 0ad558d799083a13 --by kernel --metric energy
    """
    from fsjoule.filesystems import named_filesystems
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.queries import check_names, list_series, points
    from fsjoule.store.index.selection import resolve

    where = Where(boards=listed(board), filesystems=named_filesystems(fs, lenient=True), invalid_too=with_invalid)
    with open_index(index) as opened:
        check_names(opened, where)
        if of is not None:
            chosen = resolve(opened, of).where
            where = dataclasses.replace(where, runs=chosen.runs, kernels=chosen.kernels, branches=chosen.branches)
        if key is None:
            _show_list(list_series(opened, where), wide=wide, json_output=json_output)
            return
        named = _only(opened, key)
        where = dataclasses.replace(where, series=(named.key,))
        shown = points(opened, where, metrics=tuple(metric or Metric), order=by, at_most=limit or None)
    found = shown.get(named, ())
    _show_points(named, found, tuple(metric or ()), wide=wide, json_output=json_output)
    if limit and len(found) == limit:
        progress(f"these are the newest {limit}; --limit 0 shows all")


def _only(index: Index, key: str) -> Series:
    """The only series whose key starts with `key`. Raises ConfigError if none or several do."""
    from fsjoule.store.index.queries import find_series

    found = find_series(index, key) if key else []
    if not found:
        raise ConfigError(f"the index has no series {key!r}", hint="list them with: fsjoule index series")
    if len(found) > 1:
        raise ConfigError(f"several keys start with {key!r}", hint=", ".join(one.key for one in found))
    return found[0]


def _show_import(report: ImportReport, index: str, *, json_output: bool) -> None:
    """Show the import. Raises ResultError at the end if run folders conflict with the index."""
    if json_output:
        print_json({"index": _plain(index), **dataclasses.asdict(report)})
    else:
        out.print(
            f"{counted(report.folders, 'run folder')}: {report.new} new, {report.changed} changed, "
            f"{report.unchanged} unchanged; {counted(report.measurements, 'measurement')} imported",
            highlight=False,
        )
        _show_faults("damaged run folder", "skipped", report.damaged_runs)
        _show_faults("damaged measurement", "skipped", report.damaged_measurements)
        _show_faults("run folder", "in conflict with the index", report.conflicts)
        for fault in report.damaged_states[:_SHOWN_FAULTS]:
            progress(f"left out: {fault}")
        if report.pruned:
            count = counted(report.pruned, "run")
            out.print(f"{count} left out, pruned from the index earlier; --pruned-too brings back", highlight=False)
        if report.dropped:
            some = ", ".join(report.dropped[:_SHOWN_FAULTS])
            more = len(report.dropped) - _SHOWN_FAULTS
            some += f" and {more} more" if more > 0 else ""
            out.print(f"{counted(len(report.dropped), 'run')} dropped, folders gone: {some}")
        out.print(f"index  {_plain(index)}", soft_wrap=True, markup=False, highlight=False)
    if report.conflicts:
        raise ResultError(
            f"{len(report.conflicts)} of {report.folders} run folders were not imported: {report.conflicts[0].reason}",
            hint="find out which copy was changed, remove it, then: fsjoule index rebuild",
        )


def _show_faults(what: str, fate: str, faults: Sequence[FolderFault]) -> None:
    if not faults:
        return
    progress(f"{counted(len(faults), what)} {fate}:")
    for fault in faults[:_SHOWN_FAULTS]:
        progress(f"  {fault.path}: {fault.reason}")
    if len(faults) > _SHOWN_FAULTS:
        progress(f"  and {len(faults) - _SHOWN_FAULTS} more; --json lists all")


def _plain(index: str) -> str:
    """The index's URL without its password."""
    from fsjoule.store.index.database import index_url

    return index_url(index).render_as_string(hide_password=True) if "://" in index else index


def _since(option: str, text: str) -> str:
    try:
        begin = datetime.now(UTC) - age(option, text)
    except OverflowError as error:
        raise ConfigError(f"{option} {text!r} is too long ago", hint="leave it out: nothing is older") from error
    return begin.isoformat(timespec="seconds").replace("+00:00", "Z")


def _show_pruning(found: Pruning, wanted: Retention, *, removed: bool, json_output: bool) -> None:
    """Say what was removed, or would be."""
    from fsjoule.store.index.retention import KeepReason

    if json_output:
        runs = [run._asdict() for run in found.runs]
        print_json({"removed": removed, **dataclasses.asdict(wanted), **dataclasses.asdict(found), "runs": runs})
        return
    shown = [f"  {run.started_utc[:10]}  {run.run_id}  {run.branch or ABSENT}" for run in found.runs[:_SHOWN_RUNS]]
    if len(found.runs) > _SHOWN_RUNS:
        shown.append(f"  and {len(found.runs) - _SHOWN_RUNS} more; --json lists all")
    fate = "removed" if removed else "would be removed"
    kept = ", ".join(
        (
            f"{found.kept[KeepReason.BRANCH]} of kept branches",
            counted(found.kept[KeepReason.REFERENCE], "reference"),
            f"{found.kept[KeepReason.CHANGE]} of changes",
        )
    )
    measured = counted(found.measurements, "measurement")
    lines = [
        f"{counted(len(found.runs), 'run')} from before {wanted.since_utc} {fate}, with {measured}",
        *shown,
        f"older runs that stay: {kept}",
    ]
    if found.runs and not removed:
        lines.append("nothing was removed; add --remove")
    elif found.runs:
        lines.append("run folders are untouched; imports leave these runs out from now on")
    out.print("\n".join(lines), highlight=False, markup=False)


def _show_list(found: Sequence[SeriesCount], *, wide: bool, json_output: bool) -> None:
    if json_output:
        print_json([{**dataclasses.asdict(count), "series": count.series.document()} for count in found])
        return
    from fsjoule.report.table import Column, listing, word
    from fsjoule.report.terminal import print_table

    rows: list[tuple[str, ...]] = []
    for count in found:
        series = count.series
        names = (series.key[:_SHORT_KEY], series.series.filesystem, series.series.workload, series.series.board)
        numbers = (count.valid, count.measurements, count.kernels)
        rows.append((*names, "simulated" if series.simulated else "", *map(str, numbers)))
    words = (*map(word, ("key", "filesystem", "workload", "board", "")), Column("valid"))
    print_table(out, listing((*words, Column("of", optional=True), Column("kernels", optional=True)), rows), wide=wide)


def _show_points(
    series: Series, found: Sequence[Point], metrics: Sequence[Metric], *, wide: bool, json_output: bool
) -> None:
    if json_output:
        print_json({"series": series.document(), "points": [_point(point) for point in found]})
        return
    from fsjoule.report.table import Column, listing, word
    from fsjoule.report.terminal import print_table

    out.print(f"{series.label} on {series.series.board}{'  simulated' if series.simulated else ''}", style="bold")
    present = {metric for point in found for metric in point.figures}
    metrics_of = fio_metrics if Metric.THROUGHPUT in present else timed_metrics
    metrics_of = held_metrics if Metric.STATE_POWER in present else metrics_of
    chosen, always = metrics or metrics_of(Use.POINTS), metrics_of(Use.MAIN)
    invalid = any(not point.valid for point in found)
    # Several boards of one type share a series; each figure then names its board.
    places = len({point.origin.board for point in found}) > 1
    heads = (word("day"), word("kernel"), word("run"), Column("boot"), *[word("place")] * places)
    figures = (Column(each.row.header or each.unit, optional=not metrics and each not in always) for each in chosen)
    rows: list[tuple[str, ...]] = []
    for point in found:
        kernel = point.kernel.release if point.kernel else ABSENT
        reasons = ["; ".join(point.invalid_reasons)] * invalid
        board = [point.origin.board or ABSENT] * places
        told = (_figure(point, each) for each in chosen)
        rows.append((point.started_utc[:10], kernel, point.run_id, str(point.boot), *board, *told, *reasons))
    print_table(out, listing((*heads, *figures, *[word("invalid")] * invalid), rows), wide=wide)


def _figure(point: Point, metric: Metric) -> str:
    if metric not in point.figures:
        return ABSENT
    uncertainty = point.uncertainties.get(metric)
    return f"{point.figures[metric]:.4g}" + ("" if uncertainty is None else f" ± {uncertainty:.2g}")


def _point(point: Point) -> dict[str, object]:
    kernel = dataclasses.asdict(point.kernel) if point.kernel else None
    figures, uncertainties = (
        {metric.row.column: value for metric, value in values.items()}
        for values in (point.figures, point.uncertainties)
    )
    told = {"kernel": kernel, "valid": point.valid, "figures": figures, "uncertainties": uncertainties}
    plain = {name: value for name, value in point._asdict().items() if name != "origin"}
    return {**plain, **told, **point.origin._asdict()}
