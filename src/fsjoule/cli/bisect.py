"""`fsjoule bisect`. Thin: it reads arguments, calls one function, shows what came back."""

from __future__ import annotations

import secrets
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import (
    All,
    Boards,
    Budget,
    Filesystems,
    Json,
    PlaceTag,
    Priority,
    Select,
    Storages,
    Wait,
    Wide,
    guest_time_board,
    joined,
    output_file,
    progress,
)
from fsjoule.cli.explain import found_or_warned
from fsjoule.cli.outputs import Format, outputs
from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric, Use, fio_metrics, metrics_named
from fsjoule.store.index.defaults import VARIABLE

if TYPE_CHECKING:
    from fsjoule.verdicts.bisection.state import BisectionState
    from fsjoule.verdicts.explanation.changes import Explanation

app = typer.Typer()

_METRICS: Final = ",".join(fio_metrics(Use.KERNELS))
_FILESYSTEM: Final = "ext4"
_BUDGET: Final = 120  # boots
_STATE: Final = Path("bisection")


@app.callback(invoke_without_command=True)
def bisect(
    context: typer.Context,
    *,
    lg_env: Annotated[
        list[Path] | None,
        typer.Option(
            "--lg-env",
            metavar="FILE",
            help="Measure on this board (default: in guest time); repeated: on the next one if it fails.",
        ),
    ] = None,
    boards: Boards = 1,
    place_tag: PlaceTag = None,
    wait: Wait = None,
    priority: Priority = None,
    tree: Annotated[
        Path | None,
        typer.Option(
            "--tree", metavar="PATH", help="The kernel's git repository (default: the one here); nothing in it changes."
        ),
    ] = None,
    good: Annotated[
        list[str] | None, typer.Option("--good", metavar="REV", help="A revision without the loss; may be repeated.")
    ] = None,
    bad: Annotated[
        list[str] | None,
        typer.Option("--bad", metavar="REV", help="A revision with it (default: HEAD); may be repeated."),
    ] = None,
    fs: Filesystems = None,
    suite: Annotated[str, typer.Option("--suite", metavar="NAME", help="The suite.")] = "quick",
    select: Select = None,
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME[,NAME]", help="The figures in which a loss counts.")
    ] = _METRICS,
    effect: Annotated[str, typer.Option("--effect", metavar="PERCENT", help="The smallest loss that matters.")] = "5%",
    budget: Budget = None,
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="Where the log is kept; the same command goes on there.")
    ] = _STATE,
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Where run folders go, one per boot.")
    ] = Path("results"),
    provision: Annotated[
        str, typer.Option("--provision", metavar="root|scratch", help="Where the filesystem under test lives.")
    ] = "scratch",
    storage: Storages = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE|LINE", help="A fragment of the configuration; may be repeated."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", help="Compilers that run at once.")] = 2,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed for all random choices (default: new, recorded).")
    ] = None,
    index: Annotated[
        str | None,
        typer.Option("--index", metavar="URL", envvar=VARIABLE, help="Earlier boots of these kernels count, too."),
    ] = None,
    further: Annotated[
        bool, typer.Option("--continue", help="After an answer, go on to the next loss in the range.")
    ] = False,
    scan: Annotated[
        int, typer.Option("--scan", metavar="N", help="If the ends are equal, look at N commits between them, too.")
    ] = 0,
    explain: Annotated[
        bool, typer.Option("--explain", help="Then say which functions cost it (two more boots, with profiles).")
    ] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown", metavar="FILE", callback=output_file, help="Write the answer as Markdown, for an issue."
        ),
    ] = None,
    everything: All = False,
    wide: Wide = False,
    form: Format = None,
    json_output: Json = False,
) -> None:
    """Find the commit that made a figure worse, with a stated chance of error.

    Kernels of commits between a good and a bad revision are built while the board measures; each boot is a run of its
    own. The first bad commit is confirmed by fresh boots beside its parent, by a revert on the bad end, and with forced
    alignment of functions. Interrupt it whenever you like: the same command goes on where it was.

    Exit code 0: a culprit. 10: several commits, one of which it is. 11: no regression in this range. 3: not
    decided within the budget. 12: cannot be tested. Errors: 2 the input, 4 the lab, 6 an end that does not build, 70 a
    bug, 130 interrupted (143, 129).

    Example, in a kernel's tree: fsjoule bisect --good v6.1 --bad v6.12 -k randread
    """
    if context.invoked_subcommand is not None:
        return
    shown = outputs(form, printed={"json": json_output}, files={"markdown": markdown})
    from fsjoule.kernels.source_tree import tree_here

    tree = tree or tree_here()
    missing = {"--tree (this folder is in no kernel's repository)": tree, "--good REV": good}
    if lacking := [name for name, value in missing.items() if not value]:
        raise ConfigError(f"bisect needs {', '.join(lacking)}", hint="fsjoule bisect --help has an example")
    assert tree is not None
    from fsjoule.lab import read_environment, wanted_place
    from fsjoule.report.bisection.view import BisectionView
    from fsjoule.runs.bisect.bisection import bisect as run
    from fsjoule.runs.bisect.question import BisectRequest

    wanted = wanted_place(place_tag, wait, priority)
    environments = tuple(read_environment(each, wanted) for each in lg_env or [guest_time_board()])
    found = run(
        BisectRequest(
            environment=environments[0],
            others=environments[1:],
            boards=boards,
            tree=tree,
            good=tuple(good or ()),
            bad=tuple(bad or ("HEAD",)),
            filesystems=joined(fs) or _FILESYSTEM,
            suite=suite,
            select=select or "",
            state=state,
            results=results,
            command=("fsjoule", *sys.argv[1:]),
            metrics=_metrics(metric),
            effect=_fraction(effect),
            budget=_at_least(_BUDGET if budget is None else budget, "--budget", 6),
            seed=secrets.randbits(32) if seed is None else seed,
            provision=provision,
            storages=storage,
            config=tuple(config or ()),
            index=index,
            further=further,
            scan=_at_least(scan, "--scan", 0),
            explained=explain,
            jobs=_at_least(jobs, "--jobs", 1),
            say=progress,
        )
    )
    shown.show(BisectionView(found, partial(_why, found), everything, wide), answers=True)
    raise typer.Exit(_exit_code(found))


@app.command("show")
def show(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="The --state of a bisection, under way or done.")],
    *,
    git: Annotated[bool, typer.Option("--git", help="Print a log for git bisect replay instead.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", callback=output_file, help="Write a self-contained page, with pictures."
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", callback=output_file, help="Write it as Markdown, for an issue."),
    ] = None,
    everything: All = False,
    wide: Wide = False,
    form: Format = None,
    json_output: Json = False,
) -> None:
    """Show a bisection: its answer or how far it is, the most probable commits, and with --all every boot.

    Example: fsjoule bisect show bisection --all
    """
    from fsjoule.report.bisection.view import BisectionView
    from fsjoule.store.bisection import read_bisection
    from fsjoule.verdicts.bisection.state import BisectionState

    shown = outputs(form, printed={"json": json_output}, files={"page": html, "markdown": markdown})
    found = BisectionState.of(read_bisection(state))
    if git:
        from fsjoule.report.bisection.view import git_log

        typer.echo(git_log(found), nl=False)
        return
    shown.show(BisectionView(found, partial(_why, found), everything, wide))


def _exit_code(state: BisectionState) -> int:
    from fsjoule.verdicts.bisection.answer import EXIT_CODES

    return 0 if state.answered is None else EXIT_CODES[state.answered.kind]


def _why(state: BisectionState) -> tuple[Explanation, ...]:
    from fsjoule.runs.bisect.bisection import explain_bisection

    return found_or_warned(partial(explain_bisection, state))


def _metrics(text: str) -> tuple[Metric, ...]:
    from fsjoule.model.labels import listed

    metrics = metrics_named(listed(text))
    if not metrics:
        raise ConfigError("--metric names no metric", hint=f"for example --metric {_METRICS}")
    return metrics


def _fraction(text: str) -> float:
    """`5%`, `5` or `0.05`: a number of 1 or more is a percentage."""
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        number = -1.0
    fraction = number / 100 if "%" in text or number >= 1 else number
    if not 0.001 <= fraction <= 0.5:  # noqa: PLR2004 - what fewer than a thousand boots can find, and half
        raise ConfigError(f"--effect {text}: it is between 0.1% and 50%", hint="for example --effect 5%")
    return fraction


def _at_least(number: int, option: str, least: int) -> int:
    if number < least:
        raise ConfigError(f"{option} {number}: it is at least {least}")
    return number
