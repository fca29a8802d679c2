"""The question of the next bisection: the newest loss that fresh boots confirmed, in a tree that has both kernels."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bisections import COMMITS, asked
from command_line import CommandLine, Done, command_line
from index_runs import write_run
from kernel_trees import commit, git, new_tree

from fsjoule.model.series import Series
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.bisection import Answered, CommitLine, bisection_log
from fsjoule.store.confirmations import Confirmation, ConfirmedPoint, keep

PROJECT = Path(__file__).parents[2]
BOARD = PROJECT / "env" / "virtual.yaml"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """In a folder with a kernel's tree, and an index with one run of the virtual board."""
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    new_tree(tmp_path / "linux")
    write_run(tmp_path / "runs")
    run = command_line(monkeypatch, capfd)
    assert run("index", "rebuild", "runs", "--index", "index.sqlite").code == 0
    return run


@pytest.fixture
def confirmation(run: CommandLine, tmp_path: Path) -> Confirmation:
    del run
    measured = next(each for each in write_run(tmp_path / "same").measurements if each.slug == "ext4-randread-16k")
    commit(tmp_path / "linux", "a", "1")
    described = git(tmp_path / "linux", "describe", "--tags", "HEAD")
    sides = (
        ConfirmedPoint("r1", "2026-03-01T00:00:00Z", "6.1.0", "v6.1 0123abcd"),
        ConfirmedPoint("r2", "2026-03-02T00:00:00Z", "6.1.0", f"{described} 4567cdef"),
    )
    return Confirmation(
        made_utc="2026-03-03T00:00:00Z",
        series=Series(measured.series, measured.simulated).key,
        metric="throughput",
        before=sides[0],
        after=sides[1],
        nominated_ratio=0.94,
        outcome=Confirmed.CONFIRMED,
        ratio=0.95,
        pairs=5,
        smallest_effect=0.02,
        alpha=0.01,
        beta=0.05,
        run_id="fresh",
    )


def confirmed(run: CommandLine, board: Path = BOARD) -> Done:
    words = ("--tree", "linux", "--states", "states", "--confirmations", "kept", "--index", "index.sqlite")
    done = run("ci", "confirmed", "--lg-env", board, *words)
    assert done.code == 0, done.err
    return done


def test_the_newest_confirmed_loss_is_the_question(run: CommandLine, confirmation: Confirmation) -> None:
    keep(Path("kept"), confirmation)
    keep(Path("kept"), replace(confirmation, made_utc="2026-03-04T00:00:00Z", ratio=1.05, nominated_ratio=1.05))
    keep(Path("kept"), replace(confirmation, made_utc="2026-03-05T00:00:00Z", outcome=Confirmed.REFUTED))
    words = shlex.split(confirmed(run).out)
    options = dict(zip(words[::2], words[1::2], strict=True))
    state = options.pop("--state")
    assert options == {
        "--good": git(Path("linux"), "rev-parse", "v6.1"),
        "--bad": git(Path("linux"), "rev-parse", "HEAD"),
        "--fs": "ext4",
        "--suite": "quick",
        "-k": "ext4-randread-16k",
        "--provision": "scratch",
        "--storage": "card",
        "--metric": "throughput",
        "--effect": "4.00%",
    }
    # These are words that bisect takes; one that was cut short is the question still, an answered one is none.
    refused = run("bisect", "--lg-env", BOARD, "--tree", "linux", *words, "--budget", "1")
    assert "--budget 1: it is at least 6" in refused.err
    with bisection_log(Path(state)) as log:
        log.add(asked(9))
        log.add(CommitLine(COMMITS))
        assert confirmed(run).out
        log.add(Answered("2026-03-06T00:00:00Z", AnswerKind.CULPRIT, "done"))
    answered = confirmed(run)
    assert answered.out == ""
    assert "no confirmed loss is without an answer" in answered.err


def test_what_this_board_or_tree_cannot_answer_is_named(run: CommandLine, confirmation: Confirmation) -> None:
    debian = replace(confirmation.before, kernel_version="6.1.164-1")
    for number, (other, _) in enumerate(
        unanswerable := [
            (replace(confirmation, before=debian), "has no revision '6.1.164-1'"),
            (replace(confirmation, before=confirmation.after), "the kernel is the same before and after"),
            (replace(confirmation, series="0123456789abcdef"), "the index does not have it"),
            (replace(confirmation, before=replace(debian, kernel_version="")), "was not built from a repository"),
        ]
    ):
        keep(Path("kept"), replace(other, made_utc=f"2026-03-1{number}T00:00:00Z"))
    told = confirmed(run)
    assert told.out == ""
    for _, why in unanswerable:
        assert why in told.err
    keep(Path("kept"), confirmation)
    assert confirmed(run).out
    elsewhere = confirmed(run, PROJECT / "env" / "deterministic.yaml")
    assert elsewhere.out == ""
    assert "it was measured on board virtual, not deterministic" in elsewhere.err


def job(project: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("CI_", "FSJOULE_INDEX"))}
    given = {"GATE_ENVIRONMENT": "env/deterministic.yaml", "GATE_POLICY": "env/gate.toml", "FS": "ext4"}
    given |= {"CI_PROJECT_DIR": str(project), "SUITE": "quick", **variables}
    argv = [PROJECT / ".ci" / "bisect"]
    return subprocess.run(argv, env=ours | given, capture_output=True, text=True, timeout=300, check=False)


def test_the_job_asks_what_it_is_given_and_needs_a_question(run: CommandLine, tmp_path: Path) -> None:
    del run
    nothing = job(tmp_path / "linux")
    assert nothing.returncode == 0
    assert "nothing to bisect: give GOOD (and BAD)" in nothing.stdout
    refused = job(tmp_path / "linux", GOOD="v6.1", BAD="main", SELECT="randread")
    assert refused.returncode == 2
    assert "v6.1 is both good and bad" in refused.stderr or "main is both good and bad" in refused.stderr
    assert not (tmp_path / "linux" / "bisect.md").exists()
