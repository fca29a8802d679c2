"""`fsjoule bisect`. Thin: it reads arguments, calls one function, shows what came back."""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from fsjoule.cli.common import Boards, Budget, Filesystems, Select, Storages, guest_time_board, joined
from fsjoule.cli.explain import found_or_warned
from fsjoule.cli.options import AnswerOptions, BoardsOptions, argument, file_option, with_options
from fsjoule.cli.outputs import outputs
from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric, Use, fio_metrics, metrics_named
from fsjoule.runs.options import DEFAULT_RESULTS, DEFAULT_SUITE, flag, option
from fsjoule.store.index.defaults import VARIABLE

if TYPE_CHECKING:
    from fsjoule.verdicts.bisection.state import BisectionState
    from fsjoule.verdicts.explanation.changes import Explanation

app = typer.Typer()

_METRICS: Final = ",".join(fio_metrics(Use.KERNELS))
_FILESYSTEM: Final = "ext4"
_BUDGET: Final = 120  # boots
_STATE: Final = Path("bisection")


@dataclass(frozen=True, kw_only=True)
class BisectOptions(BoardsOptions, AnswerOptions):
    lg_env: list[Path] | None = option(
        "FILE", "Measure on this board (default: in guest time); repeated: on the next one if it fails."
    )
    tree: Path | None = option("PATH", "The kernel's git repository (default: the one here); nothing in it changes.")
    build: str = option("COMMAND", "The tree is another program's, and this command builds it.", "")
    loader: list[str] | None = option("[PIECE=]FILE", "--build makes this piece of the boot loader; may be repeated.")
    kernel: str | None = option("NAME", "With --build: the kernel that boots.")
    install: list[str] | None = option("PATH=FILE", "--build makes this file of the root; may be repeated.")
    good: list[str] | None = option("REV", "A revision without the loss; may be repeated.")
    bad: list[str] | None = option("REV", "A revision with it (default: HEAD); may be repeated.")
    fs: Filesystems = None
    suite: str = option("NAME", "The suite.", DEFAULT_SUITE)
    select: Select = None
    metric: str = option("NAME[,NAME]", "The figures in which a loss counts.", _METRICS)
    effect: str = option("PERCENT", "The smallest loss that matters.", "5%")
    budget: Budget = None
    state: Path = option("DIR", "Where the log is kept; the same command goes on there.", _STATE)
    results: Path = option("DIR", "Where run folders go, one per boot.", Path(DEFAULT_RESULTS))
    provision: str = option("root|scratch", "Where the filesystem under test lives.", "scratch")
    storage: Storages = None
    config: list[str] | None = option("FILE|LINE", "A fragment of the configuration; may be repeated.")
    jobs: int = option("N", "Compilers that run at once.", 2)
    seed: int | None = option("N", "Seed for all random choices (default: new, recorded).")
    index: str | None = option("URL", "Earlier boots of these kernels count, too.", envvar=VARIABLE)
    boards: Boards = 1  # more are ahead of the search, which may be in vain
    further: bool = flag("After an answer, go on to the next loss in the range.", name="--continue")
    scan: int = option("N", "If the ends are equal, look at N commits between them, too.", 0)
    explain: bool = flag("Then say which functions cost it (two more boots, with profiles).")
    markdown: Path | None = file_option("Write the answer as Markdown, for an issue.")


@app.callback(invoke_without_command=True)
@with_options
def bisect(context: typer.Context, asked: BisectOptions) -> None:
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
    shown = outputs(asked.form, printed={"json": asked.json_output}, files={"markdown": asked.markdown})
    from fsjoule.kernels.source_tree import tree_here

    if not asked.build and (asked.loader or asked.install or asked.kernel):
        what = "--loader, --install and --kernel are for --build, the command that makes a program"
        raise ConfigError(what, hint="docs/bisect.md has an example")
    tree = asked.tree or (None if asked.build else tree_here())
    here = "" if asked.build else " (this folder is in no kernel's repository)"
    missing = {f"--tree{here}": tree, "--good REV": asked.good}
    if lacking := [name for name, value in missing.items() if not value]:
        raise ConfigError(f"bisect needs {', '.join(lacking)}", hint="fsjoule bisect --help has an example")
    assert tree is not None
    from fsjoule.lab import read_environment
    from fsjoule.report.bisection.view import BisectionView
    from fsjoule.runs.bisect.bisection import bisect as run
    from fsjoule.runs.bisect.question import BisectRequest

    place = asked.place_request()
    environments = tuple(read_environment(each, place) for each in asked.lg_env or [guest_time_board()])
    state = run(
        BisectRequest(
            environment=environments[0],
            others=environments[1:],
            boards=asked.boards,
            tree=tree,
            good=tuple(asked.good or ()),
            bad=tuple(asked.bad or ("HEAD",)),
            filesystems=joined(asked.fs) or _FILESYSTEM,
            suite=asked.suite,
            select=asked.select or "",
            state=asked.state,
            results=asked.results,
            command=("fsjoule", *sys.argv[1:]),
            metrics=_metrics(asked.metric),
            effect=_fraction(asked.effect),
            budget=_at_least(_BUDGET if asked.budget is None else asked.budget, "--budget", 6),
            seed=secrets.randbits(32) if asked.seed is None else asked.seed,
            provision=asked.provision,
            storages=asked.storage,
            config=tuple(asked.config or ()),
            index=asked.index,
            further=asked.further,
            scan=_at_least(asked.scan, "--scan", 0),
            explained=asked.explain,
            jobs=_at_least(asked.jobs, "--jobs", 1),
            build=asked.build,
            kernel=asked.kernel,
            loader=tuple(asked.loader or ()),
            install=tuple(asked.install or ()),
        )
    )
    shown.show(BisectionView(state, partial(_why, state), asked.everything, asked.wide), answers=True)
    raise typer.Exit(_exit_code(state))


@dataclass(frozen=True, kw_only=True)
class BisectShowOptions(AnswerOptions):
    state: Path = argument("STATE", "The --state of a bisection, under way or done.", ...)
    git: bool = flag("Print a log for git bisect replay instead.")
    html: Path | None = file_option("Write a self-contained page, with pictures.")
    markdown: Path | None = file_option("Write it as Markdown, for an issue.")


@app.command("show")
@with_options
def show(asked: BisectShowOptions) -> None:
    """Show a bisection: its answer or how far it is, the most probable commits, and with --all every boot.

    Example: fsjoule bisect show bisection --all
    """
    from fsjoule.report.bisection.view import BisectionView
    from fsjoule.store.bisection import read_bisection
    from fsjoule.verdicts.bisection.state import BisectionState

    files = {"page": asked.html, "markdown": asked.markdown}
    shown = outputs(asked.form, printed={"json": asked.json_output}, files=files)
    state = BisectionState.of(read_bisection(asked.state))
    if asked.git:
        from fsjoule.report.bisection.view import git_log

        typer.echo(git_log(state), nl=False)
        return
    shown.show(BisectionView(state, partial(_why, state), asked.everything, asked.wide))


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
