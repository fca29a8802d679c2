"""A bisection as text, JSON, page and git's own log; its command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from bisections import COMMITS, Bisection, figures
from command_line import CommandLine
from profiles import write_profiled

from fsjoule.store.bisection import LOG_FILE
from fsjoule.testing import FakeKernelBoots, FakeKernelBuilds

_CULPRIT = COMMITS[41]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a bisection that found its culprit, with a commit that did not build."""
    folder = tmp_path_factory.mktemp("bisection")
    builds = FakeKernelBuilds(broken=frozenset({COMMITS[32]}))
    Bisection(folder, FakeKernelBoots(figures(_CULPRIT)), builds).run()
    return folder


@pytest.fixture
def explained(tmp_path: Path) -> Bisection:
    """One with a profiled boot of each side: the culprit's executes twice as much of btrfs."""
    commits = (COMMITS[40], _CULPRIT)
    folders = {
        commit: write_profiled(tmp_path / commit, {f"v{times}": 100 * times}) for times, commit in enumerate(commits, 1)
    }
    bisection = Bisection(tmp_path / "state", FakeKernelBoots(figures(_CULPRIT), profiled=folders))
    bisection.run()
    bisection.explain()
    return bisection


def test_the_answer_comes_first(done: Path, fsjoule: CommandLine) -> None:
    told = fsjoule("bisect", "show", done)
    assert told.code == 0, told.err
    first, *rest = told.out.splitlines()
    assert first == f"first bad commit: {_CULPRIT} commit number 41"
    text = "\n".join(rest)
    for words in ("introduces yes: fresh boots", "cures      yes:", "% slower", "boots in", "Commits, oldest first"):
        assert words in text


def test_all_has_every_commit_and_boot(done: Path, fsjoule: CommandLine) -> None:
    short, whole = fsjoule("bisect", "show", done).out, fsjoule("bisect", "show", done, "--all").out
    assert "less probable ones are left out" in short
    assert all(commit in whole for commit in COMMITS)
    assert "confirmation" in whole
    assert "build failed: drivers/a.c:1" in whole


def test_the_document_has_question_answer_commits_and_boots(done: Path, fsjoule: CommandLine) -> None:
    document = fsjoule("bisect", "show", done, "--json").document
    assert document["answer"]["kind"] == "culprit"
    assert document["answer"]["commits"] == [_CULPRIT]
    assert document["answer"]["changes"][0]["words"].endswith("slower")
    assert [each["number"] for each in document["boots"]] == list(range(1, len(document["boots"]) + 1))
    assert sum(each["first_bad"] for each in document["commits"]) == pytest.approx(1, abs=0.02)
    assert document["asked"]["seed"] == 7


def test_gits_log_narrows_to_the_culprit(done: Path, fsjoule: CommandLine) -> None:
    lines = fsjoule("bisect", "show", done, "--git").out.splitlines()
    assert lines[0] == "git bisect start"
    assert lines[-2:] == [f"git bisect good {COMMITS[40]}", f"git bisect bad {_CULPRIT}"]
    assert f"git bisect skip {COMMITS[32]}" in lines


def test_the_page_is_one_file_with_pictures(done: Path, fsjoule: CommandLine, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert fsjoule("bisect", "show", done, "--html", page).code == 0
    text = page.read_text()
    assert text.count("<svg") == 3
    assert "simulated" in text
    assert _CULPRIT in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_a_bisection_under_way_is_shown(done: Path, fsjoule: CommandLine, tmp_path: Path) -> None:
    lines = (done / LOG_FILE).read_bytes().splitlines(keepends=True)
    for events in (2, 3, 12, len(lines) - 1):
        (tmp_path / LOG_FILE).write_bytes(b"".join(lines[:events]))
        told = fsjoule("bisect", "show", tmp_path)
        assert told.code == 0, told.err
        assert json.loads(fsjoule("bisect", "show", tmp_path, "--json").out)["schema"] == "fsjoule.bisected/1"
    assert "not answered yet" in fsjoule("bisect", "show", tmp_path).out or "first bad commit" in told.out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "holds no bisection"),
        (b'{"event": "asked"}\n', "line 1"),
        (b"[]\n", "line 1"),
        (b'{"event": "waited", "seconds": 1}\n', "its first line is no question"),
    ],
)
def test_a_folder_that_holds_none_is_told(
    content: bytes | None, told: str, fsjoule: CommandLine, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / LOG_FILE).write_bytes(content)
    shown = fsjoule("bisect", "show", tmp_path)
    assert shown.code == 2
    assert told in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "bisect needs --tree (this folder is in no kernel's repository), --good REV"),
        (("--metric", "speed"), "unknown metric 'speed'"),
        (("--metric", ","), "--metric names no metric"),
        (("--effect", "none"), "--effect none: it is between 0.1% and 50%"),
        (("--effect", "80%"), "--effect 80%"),
        (("--budget", "1"), "--budget 1: it is at least 6"),
        (("--jobs", "0"), "--jobs 0: it is at least 1"),
    ],
)
def test_wrong_input_is_refused(arguments: tuple[str, ...], told: str, fsjoule: CommandLine, tmp_path: Path) -> None:
    given = ("--lg-env", "env/virtual.yaml", "--tree", tmp_path, "--good", "a", "--bad", "b") if arguments else ()
    refused = fsjoule("bisect", *given, *arguments)
    assert refused.code == 2
    assert told in refused.err


def test_what_the_loss_is_made_of_is_told_by_function(
    explained: Bisection, fsjoule: CommandLine, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    told = fsjoule("bisect", "show", explained.folder, "--html", page)
    assert told.code == 0, told.err
    assert told.out.startswith(f"first bad commit: {_CULPRIT}")
    assert f"btrfs randread-16k: {_CULPRIT} is busy for " in told.out
    assert "btrfs_read" in told.out
    document = fsjoule("bisect", "show", explained.folder, "--json").document
    randread = next(each for each in document["explanations"] if each["series"] == "btrfs randread-16k")
    assert randread["functions"][0]["name"] == "btrfs_read"
    assert randread["baseline"]["kernel"] == COMMITS[40]
    assert [each["kernel"]["commit"] for each in document["profiled"]] == [COMMITS[40], _CULPRIT]
    text = page.read_text()
    assert '<td class="name" data-name="function">btrfs_read</td>' in text
    assert 'class="icicle"' in text


def test_an_explanation_takes_one_boot_of_each_side_and_changes_no_answer(explained: Bisection) -> None:
    before = explained.answer()
    booted = len(explained.boots.booted)
    state = explained.explain()
    assert len(explained.boots.booted) == booted
    assert state.answered is not None
    assert len(state.booted) == before.boots
    assert explained.answer() == before
    without = Bisection(explained.folder.with_name("none"), FakeKernelBoots(figures(None)))
    without.run()
    assert without.explain().profiled == (), "there is nothing to explain"


def test_an_explanation_whose_runs_are_gone_costs_no_answer(explained: Bisection, fsjoule: CommandLine) -> None:
    shutil.rmtree(explained.boots.profiled[_CULPRIT])
    told = fsjoule("bisect", "show", explained.folder)
    assert told.code == 0
    assert told.out.startswith("first bad commit")
    assert "warning: it cannot be explained:" in told.err
    assert "is not a run folder" in told.err
