"""`fsjoule trend`: what changed over time or over kernels."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import (
    Boards,
    Json,
    PlaceTag,
    Priority,
    Wait,
    Wide,
    out,
    output_file,
    output_folder,
    progress,
    refuse,
    write_text,
)
from fsjoule.cli.explain import found_or_warned, tell_after
from fsjoule.cli.index import DEFAULT_LOCATION, Location
from fsjoule.cli.outputs import Format, outputs
from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.model.metrics import metrics_named
from fsjoule.model.series import Order, Where, utc_named
from fsjoule.report.forge import VARIABLE as FORGE
from fsjoule.store.confirmations import FOLDER, confirmations
from fsjoule.store.index.defaults import LEAST_OF_EACH, MOST_READ

if TYPE_CHECKING:
    from fsjoule.runs.confirm import Again
    from fsjoule.store.index.database import Index
    from fsjoule.verdicts.explanation.changes import Explanation
    from fsjoule.verdicts.trend.trend import Trend

app = typer.Typer()

_RESULTS: Final = Path("results")
_Names = list[str] | None


@app.callback(invoke_without_command=True)
def trend(
    context: typer.Context,
    *,
    series: Annotated[_Names, typer.Option("--series", help="Only these series, by key or the start of it.")] = None,
    board: Annotated[_Names, typer.Option("--board", help="Only these boards.")] = None,
    fs: Annotated[_Names, typer.Option("--fs", help="Only these filesystems.")] = None,
    workload: Annotated[_Names, typer.Option("--workload", help="Only these workloads: randwrite-16k.")] = None,
    suite: Annotated[_Names, typer.Option("--suite", help="Only these suites.")] = None,
    branch: Annotated[_Names, typer.Option("--branch", help="Only runs of these branches.")] = None,
    kernel: Annotated[_Names, typer.Option("--kernel", help="Only these kernels; 6.1 means every 6.1.")] = None,
    metric: Annotated[
        _Names, typer.Option("--metric", help="Figures to show, or all (default: throughput, duration and energy).")
    ] = None,
    by: Annotated[Order, typer.Option("--by", help="Over time (runs) or over kernels, oldest first.")] = Order.TIME,
    since: Annotated[str | None, typer.Option("--since", help="Only from this day or time (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Only before this day or time (UTC).")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default=False,
            help="Read at most this many measurements, the newest of each series; 0: all "
            f"(default: {MOST_READ:,}, and of each series {LEAST_OF_EACH}).",
        ),
    ] = None,
    index: Location = DEFAULT_LOCATION,
    kept: Annotated[Path, typer.Option("--confirmations", metavar="DIR", help="Folder of confirmations.")] = _RESULTS
    / FOLDER,
    confirm: Annotated[bool, typer.Option("--confirm", help="Measure suspected changes again on fresh boots.")] = False,
    lg_env: Annotated[
        Path | None, typer.Option("--lg-env", metavar="FILE", help="With --confirm: the board's environment file.")
    ] = None,
    place_tag: PlaceTag = None,
    wait: Wait = None,
    priority: Priority = None,
    tree: Annotated[
        Path | None, typer.Option("--tree", metavar="DIR", help="With --confirm: a kernel repository to rebuild from.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="With --confirm: effects, error rates and budget.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="With --confirm: say which functions cost what changed (board in guest time)."),
    ] = False,
    boards: Boards = 1,
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="With --confirm: where the new run folders go.")
    ] = _RESULTS,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE",
            callback=output_file,
            help="Write a page with all histories, over time and over kernels.",
        ),
    ] = None,
    forge: Annotated[
        str | None,
        typer.Option("--forge", metavar="URL", envvar=FORGE, help="With --page: the commits' project on a forge."),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg",
            metavar="DIR",
            callback=output_folder,
            help="Write charts of the histories with a change, or of all if few.",
        ),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--recompute", help="Judge all series again, also those without anything new.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show also what is over, accepted or refuted, and all that is open.")
    ] = False,
    wide: Wide = False,
    form: Format = None,
    json_output: Json = False,
) -> None:
    """Show what made series slower, or use more energy, newest first: a cause for all boards and figures that it costs.

    Lists take commas, and may be repeated. Losses that are over are counted; --all shows them.

    Example: fsjoule trend --board virtual --fs btrfs --by kernel
    """
    if context.invoked_subcommand is not None:
        return
    from fsjoule.model.labels import listed
    from fsjoule.statistics.finder import RupturesFinder
    from fsjoule.store.change_points import remembered
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.queries import check_names
    from fsjoule.store.index.selection import kernels_named
    from fsjoule.store.index.trend import trend_reader
    from fsjoule.verdicts.trend.trend import trend_of

    named = Where(
        series=listed(series),
        boards=listed(board),
        filesystems=listed(fs),
        suites=listed(suite),
        branches=listed(branch),
        workloads=listed(workload),
        since_utc=utc_named("--since", since),
        until_utc=utc_named("--until", until),
    )
    shown = outputs(form, printed={"json": json_output}, files={"page": page})
    all_names = bool(svg) or not shown.prints_text or bool(shown.files)
    wanted, of_kernels = metrics_named(listed(metric)), listed(kernel)

    def look(opened: Index, order: Order) -> Trend:
        check_names(opened, named)
        known, faults = confirmations(kept)
        for fault in faults:
            progress(f"left out: {fault}")
        with remembered(RupturesFinder()) as finder:
            read = trend_reader(
                opened,
                replace(named, kernels=kernels_named(opened, of_kernels)),
                order=order,
                metrics=wanted,
                at_most=MOST_READ if limit is None else limit or None,
                of_each=LEAST_OF_EACH if limit is None else 1,
                anew=anew,
            )
            return trend_of(read, confirmations=known, all_names=all_names, finder=finder)

    again: list[Again] = []
    if not confirm:
        asked = {"--boards": boards > 1, "--place-tag": place_tag, "--wait": wait, "--priority": priority}
        hint = "for profiles that were kept: fsjoule explain" if explain else "add --confirm --lg-env FILE"
        refuse("only --confirm takes", {"--explain": explain, **asked}, hint=hint)
    else:
        with open_index(index) as opened:
            candidates = look(opened, by)
        place = (place_tag, wait, priority)
        again = _confirm(
            candidates,
            lg_env,
            policy,
            place=place,
            tree=tree,
            results=results,
            kept=kept,
            explain=explain,
            boards=boards,
        )
    explained = [found_or_warned(each.explained) if explain else () for each in again]
    with open_index(index) as opened:
        _keep(opened, again, explained)
        found = look(opened, by)
        other = look(opened, Order.KERNEL if by is Order.TIME else Order.TIME) if shown.has("page") else None
    _say_what_is_known(found)
    from fsjoule.report.forge import forge_of
    from fsjoule.report.trend.view import TrendView

    project = forge_of(forge) if forge and shown.has("page") else None
    if shown.prints_text and not found.series:
        progress("no valid measurement matches; see: fsjoule index series")
    shown.show(TrendView(found, other, None if index == DEFAULT_LOCATION else index, everything or confirm, project))
    if explain:
        _explain(again, explained, told=shown.prints_text, wide=wide)
    if svg is not None:
        _write_charts(svg, found)
    if limit is None and not of_kernels and named == Where(branches=named.branches):
        # A narrower or longer look reads other measurements of each series: the next night could not use its verdicts.
        _keep_verdicts(index, *filter(None, (found, other)))


@app.command("accept")
def accept(
    series: Annotated[str, typer.Argument(metavar="SERIES", help="The series' key, or the start of it.")],
    commit: Annotated[
        str, typer.Argument(metavar="COMMIT", help="The commit, run or kernel since which it has another level.")
    ],
    *,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="Why it is taken as it is; the page shows it.")
    ] = "",
    metric: Annotated[_Names, typer.Option("--metric", help="Only in these figures (default: the usual ones).")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="It is not accepted after all.")] = False,
    index: Location = DEFAULT_LOCATION,
) -> None:
    """Accept a change: it is known, has a reason, and needs nobody's attention any more.

    A document beside the runs keeps it.

    Example: fsjoule trend accept 0ad558d7 4f1c2d3e5a6b --why "checksums are on since this commit, as intended"
    """
    from fsjoule.model.labels import counted, listed
    from fsjoule.report.trend import words
    from fsjoule.statistics.finder import RupturesFinder
    from fsjoule.store.change_points import remembered
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.states import keep_states, take_back
    from fsjoule.store.index.trend import trend_reader
    from fsjoule.store.states import ChangeState
    from fsjoule.verdicts.trend import states
    from fsjoule.verdicts.trend.trend import trend_of

    if not undo and not why.strip():
        raise ConfigError("an accepted change needs a reason", hint="say it with --why TEXT")
    metrics = metrics_named(listed(metric))
    with open_index(index) as opened, remembered(RupturesFinder()) as finder:

        def read(order: Order) -> Trend:
            return trend_of(trend_reader(opened, Where(series=(series,)), order=order, metrics=metrics), finder=finder)

        found, changes = states.changes_at(read, series, commit)
        if undo:
            take_back(opened, states.acceptances(changes))
            count = sum(change.state is ChangeState.ACCEPTED for change in changes)
            progress(f"{counted(count, 'change')} not accepted any more")
            return
        keep_states(opened, states.accepted(found, changes, why.strip()))
    for change in changes:
        out.print(f"{words.sentence(change, found)}, accepted", markup=False, highlight=False, soft_wrap=True)


def _confirm(
    candidates: Trend,
    environment: Path | None,
    policy: Path | None,
    *,
    place: tuple[str | None, str | None, float | None],
    tree: Path | None,
    results: Path,
    kept: Path,
    explain: bool,
    boards: int,
) -> list[Again]:
    if environment is None:
        raise ConfigError("--confirm needs a board", hint="name its environment file: --lg-env env/virtual.yaml")
    from fsjoule.lab import place_request, read_environment
    from fsjoule.model.labels import counted
    from fsjoule.runs.confirm import Fresh, confirm_changes
    from fsjoule.statistics.policy import read_policy

    board = read_environment(environment, place_request(*place))
    fresh = Fresh(board, read_policy(policy), results, kept, tree, tuple(sys.argv), explain, boards)
    done, refused = confirm_changes(candidates, fresh)
    for reason in refused:
        progress(f"not measured again: {reason}")
    count = sum(len(each.confirmations) for each in done)
    progress(f"{counted(count, 'change')} measured again, kept in {kept}" if count else "nothing was measured again")
    return done


def _keep(index: Index, again: list[Again], explained: list[tuple[Explanation, ...]]) -> None:
    """Keep in the index what fresh boots have confirmed, and what their profiles explain."""
    from fsjoule.store.index.states import keep_states
    from fsjoule.verdicts.trend.states import outcomes

    for each, why in zip(again, explained, strict=True):
        keep_states(index, outcomes(each.confirmations, explained=bool(why)))


def _say_what_is_known(found: Trend) -> None:
    same = found.series - len(found.news.judged)
    if same:
        have, were = ("has", "was") if same == 1 else ("have", "were")
        progress(f"{same} of {found.series} series {have} nothing new and {were} not judged again")


def _keep_verdicts(index: str, *trends: Trend) -> None:
    """Keep what was judged, for the next time; without it, the next time only takes longer."""
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.judged import keep_verdicts

    news = [each for each in trends if each.news.judged]
    if not news:
        return
    try:
        with open_index(index) as opened:
            for each in news:
                keep_verdicts(opened, each.news.question, each.news.verdicts)
    except FsjouleError as error:
        progress(f"the next trend will judge all series again: {error}")


def _explain(again: list[Again], explained: list[tuple[Explanation, ...]], *, told: bool, wide: bool) -> None:
    """Say which functions cost what was confirmed; documents have no room for it."""
    for each, why in zip(again, explained, strict=True):
        if told:
            tell_after(why, everything=False, wide=wide)
        if each.confirmed:
            words = ("fsjoule", "explain", *each.kernels, "--within", str(each.folder))
            progress(f"explain  {shlex.join(words)}")


def _write_charts(folder: Path, found: Trend) -> None:
    from fsjoule.report.trend.charts import charts

    written = 0
    for name, drawn in charts(found):
        write_text(folder / f"{name}.svg", drawn)
        written += 1
    progress(f"charts: {written} in {folder}")
