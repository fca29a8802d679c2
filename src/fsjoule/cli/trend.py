"""`fsjoule trend`: what changed over time or over kernels."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsjoule.cli.common import out, progress, refuse, write_text
from fsjoule.cli.explain import found_or_warned, tell_after
from fsjoule.cli.index import DEFAULT_LOCATION, RESULTS, Location
from fsjoule.cli.options import AnswerOptions, BoardsOptions, file_option, folder_option, with_options
from fsjoule.cli.outputs import outputs
from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.model.metrics import metrics_named
from fsjoule.model.series import Order, Where, utc_named
from fsjoule.report.forge import VARIABLE as FORGE
from fsjoule.runs.options import flag, given_options, option
from fsjoule.store.confirmations import FOLDER, confirmations
from fsjoule.store.index.defaults import LEAST_OF_EACH, MOST_READ

if TYPE_CHECKING:
    from fsjoule.runs.confirm import Again
    from fsjoule.store.index.database import Index
    from fsjoule.verdicts.explanation.changes import Explanation
    from fsjoule.verdicts.trend.trend import Trend

app = typer.Typer()

_Names = list[str] | None


@dataclass(frozen=True, kw_only=True)
class _Confirming(BoardsOptions):
    """What only a trend that confirms takes."""

    explain: bool = flag("With --confirm: say which functions cost what changed (board in guest time).")


@dataclass(frozen=True, kw_only=True)
class TrendOptions(_Confirming, AnswerOptions):
    series: _Names = option("", "Only these series, by key or the start of it.")
    board: _Names = option("", "Only these boards.")
    fs: _Names = option("", "Only these filesystems.")
    workload: _Names = option("", "Only these workloads: randwrite-16k.")
    suite: _Names = option("", "Only these suites.")
    branch: _Names = option("", "Only runs of these branches.")
    kernel: _Names = option("", "Only these kernels; 6.1 means every 6.1.")
    metric: _Names = option("", "Figures to show, or all (default: throughput, duration and energy).")
    by: Order = option("", "Over time (runs) or over kernels, oldest first.", Order.TIME)
    since: str | None = option("", "Only from this day or time (UTC).")
    until: str | None = option("", "Only before this day or time (UTC).")
    limit: int | None = option(
        "",
        "Read at most this many measurements, the newest of each series; 0: all "
        f"(default: {MOST_READ:,}, and of each series {LEAST_OF_EACH}).",
        min=0,
        show_default=False,
    )
    index: Location = DEFAULT_LOCATION
    confirmations: Path = option("DIR", "Folder of confirmations.", RESULTS / FOLDER)
    confirm: bool = flag("Measure suspected changes again on fresh boots.")
    lg_env: Path | None = option("FILE", "With --confirm: the board's environment file.")
    tree: Path | None = option("DIR", "With --confirm: a kernel repository to rebuild from.")
    policy: Path | None = option("FILE", "With --confirm: effects, error rates and budget.")
    results: Path = option("DIR", "With --confirm: where the new run folders go.", RESULTS)
    page: Path | None = file_option("Write a page with all histories, over time and over kernels.")
    forge: str | None = option("URL", "With --page: the commits' project on a forge.", envvar=FORGE)
    svg: Path | None = folder_option("Write charts of the histories with a change, or of all if few.")
    recompute: bool = flag("Judge all series again, also those without anything new.")
    everything: bool = flag("Show also what is over, accepted or refuted, and all that is open.", name="--all")


@app.callback(invoke_without_command=True)
@with_options
def trend(context: typer.Context, asked: TrendOptions) -> None:
    """Show what made series slower, or use more energy, newest first: a cause for all boards and figures that it costs.

    Lists take commas, and may be repeated. Losses that are over are counted; --all shows them.

    Example: fsjoule trend --board virtual --fs btrfs --by kernel
    """
    if context.invoked_subcommand is not None:
        return
    from fsjoule.filesystems import named_filesystems
    from fsjoule.model.labels import listed
    from fsjoule.statistics.finder import RupturesFinder
    from fsjoule.store.change_points import remembered
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.queries import check_names
    from fsjoule.store.index.selection import kernels_named
    from fsjoule.store.index.trend import trend_reader
    from fsjoule.verdicts.trend.trend import trend_of

    named = Where(
        series=listed(asked.series),
        boards=listed(asked.board),
        filesystems=named_filesystems(asked.fs, lenient=True),
        suites=listed(asked.suite),
        branches=listed(asked.branch),
        workloads=listed(asked.workload),
        since_utc=utc_named("--since", asked.since),
        until_utc=utc_named("--until", asked.until),
    )
    shown = outputs(asked.form, printed={"json": asked.json_output}, files={"page": asked.page})
    all_names = bool(asked.svg) or not shown.prints_text or bool(shown.files)
    wanted, of_kernels = metrics_named(listed(asked.metric)), listed(asked.kernel)

    def look(opened: Index, order: Order) -> Trend:
        check_names(opened, named)
        known, faults = confirmations(asked.confirmations)
        for fault in faults:
            progress(f"left out: {fault}")
        with remembered(RupturesFinder()) as finder:
            read = trend_reader(
                opened,
                replace(named, kernels=kernels_named(opened, of_kernels)),
                order=order,
                metrics=wanted,
                at_most=MOST_READ if asked.limit is None else asked.limit or None,
                of_each=LEAST_OF_EACH if asked.limit is None else 1,
                anew=asked.recompute,
            )
            return trend_of(read, confirmations=known, all_names=all_names, finder=finder)

    again: list[Again] = []
    if not asked.confirm:
        hint = "for profiles that were kept: fsjoule explain" if asked.explain else "add --confirm --lg-env FILE"
        refuse("only --confirm takes", given_options(asked, _Confirming), hint=hint)
    else:
        with open_index(asked.index) as opened:
            candidates = look(opened, asked.by)
        again = _confirm(candidates, asked)
    explained = [found_or_warned(each.explained) if asked.explain else () for each in again]
    with open_index(asked.index) as opened:
        _keep(opened, again, explained)
        found = look(opened, asked.by)
        other = look(opened, Order.KERNEL if asked.by is Order.TIME else Order.TIME) if shown.has("page") else None
    _say_what_is_known(found)
    from fsjoule.report.forge import forge_of
    from fsjoule.report.trend.view import TrendView

    project = forge_of(asked.forge) if asked.forge and shown.has("page") else None
    if shown.prints_text and not found.series:
        progress("no valid measurement matches; see: fsjoule index series")
    location = None if asked.index == DEFAULT_LOCATION else asked.index
    shown.show(TrendView(found, other, location, asked.everything or asked.confirm, project))
    if asked.explain:
        _explain(again, explained, told=shown.prints_text, wide=asked.wide)
    if asked.svg is not None:
        _write_charts(asked.svg, found)
    if asked.limit is None and not of_kernels and named == Where(branches=named.branches):
        # A narrower or longer look reads other measurements of each series: the next night could not use its verdicts.
        _keep_verdicts(asked.index, *filter(None, (found, other)))


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


def _confirm(candidates: Trend, asked: TrendOptions) -> list[Again]:
    if asked.lg_env is None:
        raise ConfigError("--confirm needs a board", hint="name its environment file: --lg-env env/virtual.yaml")
    from fsjoule.lab import read_environment
    from fsjoule.model.labels import counted
    from fsjoule.runs.confirm import Fresh, confirm_changes
    from fsjoule.statistics.policy import read_policy

    fresh = Fresh(
        environment=read_environment(asked.lg_env, asked.place_request()),
        policy=read_policy(asked.policy),
        results=asked.results,
        confirmations=asked.confirmations,
        tree=asked.tree,
        command=tuple(sys.argv),
        explained=asked.explain,
        boards=asked.boards,
    )
    done, refused = confirm_changes(candidates, fresh)
    for reason in refused:
        progress(f"not measured again: {reason}")
    count = sum(len(each.confirmations) for each in done)
    progress(
        f"{counted(count, 'change')} measured again, kept in {asked.confirmations}"
        if count
        else "nothing was measured again"
    )
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
