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
from typing import TYPE_CHECKING, Final

import typer

from fsjoule.cli.common import (
    AcrossBoards,
    Budget,
    Filesystems,
    Page,
    Storages,
    Within,
    guest_time_board,
    joined,
    progress,
    refuse,
)
from fsjoule.cli.explain import found_or_warned, tell_after
from fsjoule.cli.index import DEFAULT_LOCATION
from fsjoule.cli.options import AnswerOptions, BoardsOptions, argument, with_options
from fsjoule.cli.outputs import outputs
from fsjoule.errors import ConfigError
from fsjoule.runs.options import DEFAULT_RESULTS, BenchOptions, flag, given_options, option
from fsjoule.store.index.defaults import VARIABLE

if TYPE_CHECKING:
    from fsjoule.statistics.policy import Policy
    from fsjoule.store.gate import Gated
    from fsjoule.verdicts.explanation.changes import Explanation

app = typer.Typer()
SUITE: Final = "quick"

_HERE: Final = "-"


@dataclass(frozen=True, kw_only=True)
class _GateBenchOptions(BoardsOptions):
    """What only a gate that measures takes."""

    config: list[str] | None = option("", "With --tree: a config fragment or line; may be repeated.")
    storage: Storages = None
    seed: int | None = option("", "Seed for all random choices (default: new).")
    allow_same: bool = flag("Also measure kernels that are identical byte for byte (A/A).")
    explain: bool = flag("Say which functions cost what regressed (board in guest time).")


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """What only a gate that reads earlier boots takes."""

    within: Within = None
    drift_not_excluded: bool = flag(
        "Also accept boots that were not interleaved (drift can then look like a regression)."
    )
    across_boards: AcrossBoards = False


@dataclass(frozen=True, kw_only=True)
class GateOptions(_GateBenchOptions, _Reading, AnswerOptions):
    baseline: str | None = argument("[BASELINE]", "The side to compare with.")
    candidate: str | None = argument("[CANDIDATE]", "The side that may be worse (in a kernel's tree: HEAD).")
    baseline_option: str | None = option("A", "Another way to name the baseline.", name="--baseline")
    candidate_option: str | None = option("B", "Another way to name the candidate.", name="--candidate")
    lg_env: Path | None = option(
        "FILE", "Measure now, on the board of this environment (in a kernel's tree: in guest time)."
    )
    tree: Path | None = option("PATH", "The sides are revisions of this kernel repository (default: the one here).")
    fs: Filesystems = None
    suite: str | None = option("NAME", f"Suite (measured: {SUITE}).")
    provision: str = option("root|scratch", "Where filesystems live: root partition or scratch.", "scratch")
    policy: Path | None = option("FILE", "Metrics, effects, error rates, budget (TOML).")
    budget: Budget = None
    results: Path = option("DIR", "Where the run folder goes.", Path(DEFAULT_RESULTS))
    index: str | None = option(
        "URL", "The index: both sides come from it, or with --lg-env how noisy figures are.", envvar=VARIABLE
    )
    markdown: str | None = option("FILE|-", "Write Markdown, for a merge request, to FILE or stdout.")
    page: Page = None


@app.command("gate")
@with_options
def gate(asked: GateOptions) -> None:
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
    note = None if asked.markdown in (None, _HERE) else Path(asked.markdown)
    shown = outputs(
        asked.form,
        printed={"json": asked.json_output, "markdown": asked.markdown == _HERE},
        files={"markdown": note, "page": asked.page},
    )
    baseline, candidate = _sides(asked)
    from fsjoule.statistics.policy import read_policy

    policy = within_budget(read_policy(asked.policy), asked.budget)
    reading = given_options(asked, _Reading)
    tree = asked.tree or _tree_here(
        baseline, candidate, recorded=bool(reading) or (asked.lg_env is None and asked.index is not None)
    )
    candidate, lg_env = _defaults(baseline, candidate, tree, asked.lg_env)
    if lg_env is None:
        refuse("only a gate that measures (--lg-env FILE) takes", given_options(asked, _GateBenchOptions))
        gated = _recorded((baseline, candidate), asked, policy)
    else:
        refuse("only a gate that reads earlier boots (no --lg-env) takes", reading)
        refuse("without --tree no kernel is built with", {} if tree else {"--config": asked.config})
        gated = _measured((baseline, candidate), tree, lg_env, asked, policy)
    from fsjoule.report.gate import GateView

    checkout = Path(os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    view = GateView(gated, checkout, asked.everything, asked.wide)
    dataclasses.replace(shown, files=()).show(view, answers=True)
    if asked.explain and gated.verdict.exit_code == 1:
        explanations = _explain(gated, asked, told=shown.prints_text, on_page=shown.has("page"))
        view = dataclasses.replace(view, explanations=explanations)
    shown.write(view, answers=True)
    raise typer.Exit(gated.verdict.exit_code)


def _recorded(names: tuple[str, str], asked: GateOptions, policy: Policy) -> Gated:
    """The answer from boots that were measured before, of an index or of run folders."""
    from fsjoule.filesystems import named_filesystems
    from fsjoule.model.labels import listed
    from fsjoule.model.metrics import Metric
    from fsjoule.model.series import Where
    from fsjoule.store.sides import Sources
    from fsjoule.verdicts.recorded_gate import gate_recorded

    where = Where(filesystems=named_filesystems(asked.fs, lenient=True), suites=listed(asked.suite))
    with Sources(asked.index or DEFAULT_LOCATION) as sources:
        return gate_recorded(
            *names,
            partial(sources.side, where=where, metrics=tuple(Metric), within=asked.within),
            policy,
            drift_not_excluded=asked.drift_not_excluded,
            across_boards=asked.across_boards,
            command=_again(),
        )


def _measured(names: tuple[str, str], tree: Path | None, lg_env: Path, asked: GateOptions, policy: Policy) -> Gated:
    """The answer from boots of both sides, whose kernels are built first if they are revisions of a `tree`."""
    from fsjoule.ci.lava.signals import signals_of
    from fsjoule.kernels import kernel_choices
    from fsjoule.lab import check_places, read_environment
    from fsjoule.runs.gate import Sides, build_sides, gate_measured
    from fsjoule.runs.request import check_profiled, choose

    signals = signals_of(os.environ)
    environment = read_environment(lg_env, asked.place_request())
    options = BenchOptions(
        fs=joined(asked.fs),
        suite=asked.suite or SUITE,
        repeat=policy.budget_pairs,
        provision=asked.provision,
        results=asked.results,
        seed=secrets.randbits(32) if asked.seed is None else asked.seed,
        storage=asked.storage,
        profile=asked.explain,
        boards=asked.boards,
    )
    if asked.explain:
        check_profiled(environment)
    built = named = Sides(*names)
    if tree is not None:
        check_places(environment)
        any_kernel = kernel_choices(environment.profile.recipe)[0]
        choose(options, environment, pair=(any_kernel, any_kernel))  # a wrong name is found before two are built
        built = build_sides(named, tree, tuple(asked.config or ()))
    gated = gate_measured(
        named,
        choose(options, environment, pair=(built.baseline, built.candidate)),
        environment,
        policy,
        allow_same=asked.allow_same,
        history=asked.index,
        observer=signals,
        command=_again("--seed", str(options.seed)) if asked.seed is None else _again(),
    )
    if signals is not None:
        signals.judged(gated)
    return gated


def _explain(gated: Gated, asked: GateOptions, *, told: bool, on_page: bool) -> tuple[Explanation, ...]:
    """Say which functions cost what regressed, if `told` here or `on_page`. Whatever fails, the answer stays."""
    from fsjoule.runs.explain import explain_gated

    found = found_or_warned(partial(explain_gated, gated)) if told or on_page else ()
    if told:
        tell_after(found, everything=asked.everything, wide=asked.wide)
    words = ("fsjoule", "explain", gated.baseline.name, gated.candidate.name, "--within", str(gated.folder))
    progress(f"explain  {shlex.join(words)}")
    return found


def _sides(asked: GateOptions) -> tuple[str, str | None]:
    """Both sides, however they were named. Raises ConfigError."""
    baseline, candidate = asked.baseline, asked.candidate
    baseline_option, candidate_option = asked.baseline_option, asked.candidate_option
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


def within_budget(policy: Policy, budget: int | None) -> Policy:
    """The policy with at most `budget` boots, if given. Raises ConfigError."""
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
