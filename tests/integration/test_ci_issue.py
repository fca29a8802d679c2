"""A bisection's answer as an issue: one per question, never with the token; against a server like GitLab's."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import pytest
from bisections import COMMITS, Bisection, figures
from command_line import CommandLine
from gitlab_server import BOT, GitLab, gitlab_server

from fsjoule.testing import FakeKernelBoots

TOKEN = "glpat-planted_4711"
JOB = "https://gitlab.example/group/linux/-/jobs/31"
_CULPRIT = COMMITS[41]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bisection")
    Bisection(folder, FakeKernelBoots(figures(_CULPRIT))).run()
    return folder


@pytest.fixture
def server() -> Generator[GitLab]:
    with gitlab_server(TOKEN) as gitlab:
        yield gitlab


@pytest.fixture
def run(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, state: Path, server: GitLab) -> CommandLine:
    for name, value in {
        "FSJOULE_GITLAB_TOKEN": TOKEN,
        "CI_SERVER_URL": server.url,
        "CI_PROJECT_ID": server.project,
        "CI_PIPELINE_URL": "https://gitlab.example/group/linux/-/pipelines/1000",
        "CI_COMMIT_SHORT_SHA": "abc12345",
    }.items():
        monkeypatch.setenv(name, value)
    done = fsjoule("bisect", "show", state, "--markdown", "bisect.md")
    assert done.code == 0, done.err
    return fsjoule


def issue(run: CommandLine) -> str:
    done = run("ci", "issue", "bisect.md", "--job-url", JOB)
    assert done.code == 0, done.err
    return done.err


def test_the_markdown_has_the_answer_first(run: CommandLine) -> None:
    del run
    first, second, *rest = Path("bisect.md").read_text().splitlines()
    assert re.fullmatch("<!-- fsjoule bisect [0-9a-f]{12} -->", first)
    assert second == f"**fsjoule bisect: first bad commit: {_CULPRIT} commit number 41** (simulated)"
    text = "\n".join(rest)
    assert "- introduces: yes: fresh boots" in text
    assert "<summary>What was asked</summary>" in text


def test_an_issue_is_opened_and_then_updated_in_place(run: CommandLine, server: GitLab) -> None:
    for number in range(25):
        server.issues.append({"iid": number + 1, "state": "opened", "author": {"id": BOT}, "labels": ["fsjoule"]})
        server.issues[-1]["description"] = None
    assert issue(run) == "issue #26 opened\n"
    made = server.issues[-1]
    assert made["title"] == f"fsjoule bisect: first bad commit: {_CULPRIT} commit number 41 (simulated)"
    assert made["description"].startswith("<!-- fsjoule bisect ")
    assert f"[job]({JOB})" in made["description"]
    assert made["labels"] == ["fsjoule"]
    text = Path("bisect.md").read_text()
    Path("bisect.md").write_text(text.replace("first bad commit", "the first bad commit @&#8203;all &amp;#64;all"))
    assert issue(run) == "issue #26 updated\n"
    assert "the first bad commit @\u200ball &amp;#64;all" in server.issues[-1]["title"]
    assert len(server.issues) == 26


def test_a_closed_issue_and_somebody_elses_are_left_alone(run: CommandLine, server: GitLab) -> None:
    issue(run)
    server.issues[0]["state"] = "closed"
    before = dict(server.issues[0])
    assert issue(run) == "issue #1 left alone: it is closed\n"
    assert server.issues == [before]
    server.issues[0]["author"] = {"id": BOT + 1}
    assert issue(run) == "issue #2 opened\n"


@pytest.mark.parametrize("missing", ["FSJOULE_GITLAB_TOKEN", "CI_PROJECT_ID"])
def test_without_token_or_project_it_is_printed(
    run: CommandLine, server: GitLab, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delenv(missing)
    done = run("ci", "issue", "bisect.md")
    assert done.code == 0
    assert "the issue is printed instead" in done.err
    assert done.out.startswith("fsjoule bisect: first bad commit")
    assert server.asked == []


def test_a_refusal_is_told_without_the_token(run: CommandLine, server: GitLab) -> None:
    server.fail_with = (403, f"403 Forbidden for {TOKEN}")
    done = run("ci", "issue", "bisect.md")
    assert done.code == 7
    assert "needs the scope api" in done.err
    assert TOKEN not in done.out + done.err


def test_another_text_is_refused_and_none_is_no_error(run: CommandLine, server: GitLab) -> None:
    Path("note.md").write_text("**fsjoule gate: regressed**\n")
    refused = run("ci", "issue", "note.md")
    assert refused.code == 2
    assert "this is no answer of a bisection" in refused.err
    none = run("ci", "issue", "absent.md")
    assert none.code == 0
    assert "nothing was bisected" in none.err
    assert server.asked == []
