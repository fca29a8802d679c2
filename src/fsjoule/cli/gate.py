"""`fsjoule gate`."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import (
    AcrossBoards,
    All,
    Boards,
    Budget,
    Filesystems,
    Json,
    Page,
    PlaceTag,
    Priority,
    Storages,
    Wait,
    Wide,
    Within,
    guest_time_board,
    joined,
    progress,
    refuse,
)
from fsjoule.cli.explain import found_or_warned, tell_after
from fsjoule.cli.index import DEFAULT_LOCATION
from fsjoule.cli.outputs import Format, outputs
from fsjoule.errors import ConfigError
from fsjoule.store.index.defaults import VARIABLE

if TYPE_CHECKING:
    from fsjoule.lab import EnvironmentFile
    from fsjoule.runs.gate import Sides
    from fsjoule.runs.request import RunRequest
    from fsjoule.statistics.policy import Policy
    from fsjoule.store.gate import Gated
    from fsjoule.verdicts.explanation.changes import Explanation

app = typer.Typer()
FILESYSTEMS: Final = "ext4,btrfs"
SUITE: Final = "quick"

_HERE: Final = "-"


@app.command("gate")
def gate(
    *,
    baseline: Annotated[str | None, typer.Argument(metavar="[BASELINE]", help="The side to compare with.")] = None,
    candidate: Annotated[
        str | None,
        typer.Argument(metavar="[CANDIDATE]", help="The side that may be worse (in a kernel's tree: HEAD)."),
    ] = None,
    baseline_option: Annotated[
        str | None, typer.Option("--baseline", metavar="A", help="Another way to name the baseline.")
    ] = None,
    candidate_option: Annotated[
        str | None, typer.Option("--candidate", metavar="B", help="Another way to name the candidate.")
    ] = None,
    lg_env: Annotated[
        Path | None,
        typer.Option(
            "--lg-env",
            metavar="FILE",
            help="Measure now, on the board of this environment (in a kernel's tree: in guest time).",
        ),
    ] = None,
    place_tag: PlaceTag = None,
    wait: Wait = None,
    priority: Priority = None,
    tree: Annotated[
        Path | None,
        typer.Option(
            "--tree", metavar="PATH", help="The sides are revisions of this kernel repository (default: the one here)."
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", help="With --tree: a config fragment or line; may be repeated.")
    ] = None,
    fs: Filesystems = None,
    suite: Annotated[str | None, typer.Option("--suite", metavar="NAME", help=f"Suite (measured: {SUITE}).")] = None,
    provision: Annotated[
        str, typer.Option(metavar="root|scratch", help="Where filesystems live: root partition or scratch.")
    ] = "scratch",
    storage: Storages = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="Metrics, effects, error rates, budget (TOML).")
    ] = None,
    budget: Budget = None,
    seed: Annotated[int | None, typer.Option(help="Seed for all random choices (default: new).")] = None,
    boards: Boards = 1,
    results: Annotated[Path, typer.Option(metavar="DIR", help="Where the run folder goes.")] = Path("results"),
    allow_same: Annotated[
        bool, typer.Option("--allow-same", help="Also measure kernels that are identical byte for byte (A/A).")
    ] = False,
    index: Annotated[
        str | None,
        typer.Option(
            "--index",
            metavar="URL",
            envvar=VARIABLE,
            help="The index: both sides come from it, or with --lg-env how noisy figures are.",
        ),
    ] = None,
    within: Within = None,
    drift_not_excluded: Annotated[
        bool,
        typer.Option(
            "--drift-not-excluded",
            help="Also accept boots that were not interleaved (drift can then look like a regression).",
        ),
    ] = False,
    across_boards: AcrossBoards = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which functions cost what regressed (board in guest time).")
    ] = False,
    everything: All = False,
    wide: Wide = False,
    form: Format = None,
    json_output: Json = False,
    markdown: Annotated[
        str | None,
        typer.Option("--markdown", metavar="FILE|-", help="Write Markdown, for a merge request, to FILE or stdout."),
    ] = None,
    page: Page = None,
) -> None:
    """Decide whether the candidate is worse than the baseline, with as few boots as the error rates allow.

    In a kernel's tree the sides are revisions, which are built and boot in turn on the board in guest time until the
    answer is clear. With --lg-env they boot on that board: names of kernels, package files, build folders, revisions.
    Else the gate reads earlier boots: a side is a run, or a kernel or branch of the index; KERNEL@RUN is a kernel
    within one run.

    Exit code 0: unchanged or better, identical, or no baseline yet. 1: regressed. 3: not decided within the budget.
    Errors: 2 the input, 4 the lab, 6 a kernel that does not build, 70 a bug, 130 interrupted (143, 129). The exit code
    is the answer even if the answer cannot be printed, or written as Markdown.

    Example, in a kernel's tree: fsjoule gate main; fsjoule gate main topic --markdown -
    """
    note = None if markdown in (None, _HERE) else Path(markdown)
    shown = outputs(
        form, printed={"json": json_output, "markdown": markdown == _HERE}, files={"markdown": note, "page": page}
    )
    baseline, candidate = _sides(baseline, candidate, baseline_option, candidate_option)
    wanted = _policy(policy, budget)
    recorded = within is not None or drift_not_excluded or across_boards or (lg_env is None and index is not None)
    tree = tree or _tree_here(baseline, candidate, recorded=recorded)
    candidate, lg_env = _defaults(baseline, candidate, tree, lg_env)
    if lg_env is None:
        refuse(
            "only a gate that measures (--lg-env FILE) takes",
            {
                "--config": config,
                "--storage": storage,
                "--seed": seed,
                "--boards": boards > 1,
                "--allow-same": allow_same,
                "--explain": explain,
                "--place-tag": place_tag,
                "--wait": wait,
                "--priority": priority,
            },
        )
        gated = _recorded(
            (baseline, candidate),
            index or DEFAULT_LOCATION,
            wanted,
            filesystems=fs,
            suites=suite,
            within=within,
            drift_not_excluded=drift_not_excluded,
            across_boards=across_boards,
        )
    else:
        refuse(
            "only a gate that reads earlier boots (no --lg-env) takes",
            {"--within": within, "--drift-not-excluded": drift_not_excluded, "--across-boards": across_boards},
        )
        refuse("without --tree no kernel is built with", {} if tree else {"--config": config})
        from fsjoule.ci.lava.signals import signals_of
        from fsjoule.kernels import kernel_choices
        from fsjoule.lab import check_places, read_environment, wanted_place
        from fsjoule.runs.gate import Sides, build_sides, gate_measured

        signals = signals_of(os.environ, progress)
        drawn = secrets.randbits(32) if seed is None else seed
        environment = read_environment(lg_env, wanted_place(place_tag, wait, priority))
        options = MeasureOptions(
            environment,
            joined(fs) or FILESYSTEMS,
            suite or SUITE,
            provision,
            results,
            drawn,
            storage,
            explain,
            boards,
        )
        if explain:
            from fsjoule.runs.request import check_profiled

            check_profiled(options.environment)

        built = named = Sides(baseline, candidate)
        if tree is not None:
            check_places(options.environment)
            any_kernel = kernel_choices(options.environment.profile.recipe)[0]
            options.choice(Sides(any_kernel, any_kernel), wanted)  # a wrong name is found before two kernels are built
            built = build_sides(named, tree, tuple(config or ()), say=progress)
        gated = gate_measured(
            named,
            options.choice(built, wanted),
            options.environment,
            wanted,
            allow_same=allow_same,
            history=index,
            say=progress,
            observer=signals,
            command=_again("--seed", str(drawn)) if seed is None else _again(),
        )
        if signals is not None:
            signals.judged(gated)
    from fsjoule.report.gate import GateView

    checkout = Path(os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    view = GateView(gated, checkout, everything, wide)
    dataclasses.replace(shown, files=()).show(view, answers=True)
    if explain and gated.verdict.exit_code == 1:
        found = _explain(gated, told=shown.prints_text, wanted=shown.has("page"), everything=everything, wide=wide)
        view = dataclasses.replace(view, explanations=found)
    shown.write(view, answers=True)
    raise typer.Exit(gated.verdict.exit_code)


def _recorded(
    names: tuple[str, str],
    index: str,
    policy: Policy,
    *,
    filesystems: list[str] | None,
    suites: str | None,
    within: str | None,
    drift_not_excluded: bool,
    across_boards: bool,
) -> Gated:
    """The answer from boots that were measured before, of an index or of run folders."""
    from fsjoule.model.labels import listed
    from fsjoule.model.metrics import Metric
    from fsjoule.model.series import Where
    from fsjoule.store.sides import Sources
    from fsjoule.verdicts.recorded_gate import gate_recorded

    where = Where(filesystems=listed(filesystems), suites=listed(suites))
    with Sources(index) as sources:
        return gate_recorded(
            *names,
            partial(sources.side, where=where, metrics=tuple(Metric), within=within),
            policy,
            drift_not_excluded=drift_not_excluded,
            across_boards=across_boards,
            command=_again(),
        )


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    environment: EnvironmentFile
    filesystems: str
    suite: str
    provision: str
    results: Path
    seed: int
    storages: str | None = None
    profiled: bool = False
    boards: int = 1

    def choice(self, sides: Sides, policy: Policy) -> RunRequest:
        """The options with every name checked. Raises ConfigError."""
        from fsjoule.runs.request import choose

        return choose(
            suite_name=self.suite,
            filesystems=self.filesystems,
            kernels=(sides.baseline, sides.candidate),
            repeat=policy.budget_pairs,
            provision=self.provision,
            results=self.results,
            seed=self.seed,
            storages=self.storages,
            environment=self.environment,
            profiled=self.profiled,
            boards=self.boards,
        )


def _explain(gated: Gated, *, told: bool, wanted: bool, everything: bool, wide: bool) -> tuple[Explanation, ...]:
    """Say which functions cost what regressed, if that is `told` here or `wanted`. Whatever fails, the answer stays."""
    from fsjoule.runs.explain import explain_gated

    found = found_or_warned(partial(explain_gated, gated)) if told or wanted else ()
    if told:
        tell_after(found, everything=everything, wide=wide)
    words = ("fsjoule", "explain", gated.baseline.name, gated.candidate.name, "--within", str(gated.folder))
    progress(f"explain  {shlex.join(words)}")
    return found


def _sides(
    baseline: str | None, candidate: str | None, baseline_option: str | None, candidate_option: str | None
) -> tuple[str, str | None]:
    """Both sides, however they were named. Raises ConfigError."""
    if baseline_option is not None and candidate is None:
        baseline, candidate = None, baseline  # --baseline A B
    if (baseline and baseline_option) or (candidate and candidate_option):
        raise ConfigError("gate: a side is named twice", hint="fsjoule gate BASELINE CANDIDATE")
    first = baseline or baseline_option
    if first is None:
        raise ConfigError("gate: no baseline is named", hint="fsjoule gate BASELINE CANDIDATE")
    return first, candidate or candidate_option


def _tree_here(baseline: str, candidate: str | None, *, recorded: bool) -> Path | None:
    """The kernel's repository around this folder, if both sides are its revisions. `recorded`: an index was named."""
    from fsjoule.kernels.source_tree import is_revision, tree_here

    here = tree_here()
    if here is None or (recorded and candidate is not None):
        return None
    if candidate is None:
        return here  # whoever builds the baseline says what is wrong with it
    return here if is_revision(here, baseline) and is_revision(here, candidate) else None


def _defaults(baseline: str, candidate: str | None, tree: Path | None, lg_env: Path | None) -> tuple[str, Path | None]:
    """The candidate and the board: in a kernel's tree HEAD, and the board in guest time. Raises ConfigError."""
    if tree is not None:
        candidate, lg_env = candidate or "HEAD", lg_env or guest_time_board()
        progress(f"{candidate} against {baseline} of {tree}, on the board of {lg_env}")
    if candidate is None:
        hint = "fsjoule gate BASELINE CANDIDATE; in a kernel's tree, or with --tree PATH, the candidate is HEAD"
        raise ConfigError("gate: no candidate is named", hint=hint)
    return candidate, lg_env


def _policy(file: Path | None, budget: int | None) -> Policy:
    """The file's policy, or the default, with at most `budget` boots if given. Raises ConfigError."""
    from fsjoule.statistics.policy import read_policy

    policy = read_policy(file)
    if budget is None:
        return policy
    least = 2 * policy.least_pairs
    if budget < least:
        raise ConfigError(
            f"--budget {budget}: any decision needs {least} boots, {policy.least_pairs} of each side",
            hint=f"--budget {least}, or a policy with another least_pairs",
        )
    return dataclasses.replace(policy, budget_pairs=budget // 2)


def _again(*more: str) -> tuple[str, ...]:
    return ("fsjoule", *sys.argv[1:], *more)
