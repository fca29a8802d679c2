"""`fsjoule review`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from fsjoule.cli.common import Budget, Filesystems, Page, guest_time_board, joined
from fsjoule.cli.gate import within_budget
from fsjoule.cli.options import AnswerOptions, BoardsOptions, argument, file_option, with_options
from fsjoule.cli.outputs import outputs
from fsjoule.errors import ConfigError
from fsjoule.runs.options import DEFAULT_RESULTS, DEFAULT_SUITE, BenchOptions, option
from fsjoule.store.index.defaults import VARIABLE

app = typer.Typer()

_JOBS: Final = 2


@dataclass(frozen=True, kw_only=True)
class ReviewOptions(BoardsOptions, AnswerOptions):
    series: str = argument(
        "SERIES", "A range (main..topic), a file of mails (mbox), a patch, a folder of patches.", ...
    )
    base: str | None = option("REV", "What patches are applied to (default: their base-commit, or HEAD).")
    each: bool | None = option(
        "",
        "Judge each patch against the one before it, or only the whole (default: each if the series changes a figure).",
        name="--each/--whole",
    )
    tree: Path | None = option("PATH", "The kernel's git repository (default: the one here); nothing in it changes.")
    lg_env: Path | None = option("FILE", "Measure on this board (default: in guest time).")
    fs: Filesystems = None
    suite: str = option("NAME", "The suite.", DEFAULT_SUITE)
    policy: Path | None = option("FILE", "Metrics, effects, error rates, budget (TOML), as of the gate.")
    budget: Budget = None
    config: list[str] | None = option("FILE|LINE", "A fragment of the configuration; may be repeated.")
    jobs: int = option("N", "Compilers that run at once.", _JOBS, min=1)
    seed: int | None = option("N", "Seed for all random choices (default: new, recorded).")
    results: Path = option("DIR", "Where run folders go, one for each comparison.", Path(DEFAULT_RESULTS))
    index: str | None = option("URL", "Earlier boots in this index tell how noisy figures are.", envvar=VARIABLE)
    markdown: Path | None = file_option("Write it as Markdown, for a merge request.")
    page: Page = None


@app.command("review")
@with_options
def review(asked: ReviewOptions) -> None:
    """Judge a patch series without a board, and print the answer as a reply to its mail.

    The series is applied beside your tree. Its base and its end are built and boot in turn on the board in guest time,
    as with fsjoule gate. If something changed, each patch is judged against the one before it. What does not change the
    kernel is not booted.

    Exit code 0: unchanged or better, or nothing changes the kernel. 1: the series or a patch regressed. 3: not decided
    within the budget. 6: the base or a patch does not build. Other errors: 2 the input, or a patch that does not
    apply; 4 the lab, 70 a bug, 130 interrupted (143, 129).

    Example, in a kernel's tree: fsjoule review main..topic; fsjoule review v3.mbx --base v6.12 --each
    """
    shown = outputs(
        asked.form,
        printed={"json": asked.json_output},
        files={"markdown": asked.markdown, "page": asked.page},
    )
    from fsjoule.kernels.source_tree import tree_here

    tree = asked.tree or tree_here()
    if tree is None:
        raise ConfigError("review needs --tree (this folder is in no kernel's repository)")
    from fsjoule.lab import read_environment
    from fsjoule.report.review import ReviewView
    from fsjoule.runs.review import GUEST_TIME_POLICY, ReviewRequest
    from fsjoule.runs.review import review as run
    from fsjoule.statistics.policy import read_policy

    environment = read_environment(asked.lg_env or guest_time_board(), asked.place_request())
    is_ours = asked.policy is None and environment.profile.guest_time
    policy = within_budget(GUEST_TIME_POLICY if is_ours else read_policy(asked.policy), asked.budget)
    answer = run(
        ReviewRequest(
            environment=environment,
            tree=tree,
            series=asked.series,
            options=BenchOptions(
                fs=joined(asked.fs),
                suite=asked.suite,
                repeat=policy.budget_pairs,
                provision="scratch",
                results=asked.results,
                seed=asked.seed,
                boards=asked.boards,
            ),
            policy=policy,
            command=("fsjoule", *sys.argv[1:]),
            base=asked.base,
            each=asked.each,
            config=tuple(asked.config or ()),
            jobs=asked.jobs,
            index=asked.index,
        )
    )
    checkout = Path(os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    shown.show(ReviewView(answer, checkout, asked.everything, asked.wide), answers=True)
    raise typer.Exit(answer.exit_code)
