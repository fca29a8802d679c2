"""The note on a merge request: one, in place, and never with the token; against a server that speaks GitLab's API."""

from __future__ import annotations

import html
import json
import re
import socket
from collections.abc import Generator
from pathlib import Path

import pytest
from command_line import CommandLine, Done
from gitlab_server import GitLab, gitlab_server

TOKEN = "glpat-planted_4711"
TOLD = "**fsjoule gate: regressed**: ext4 write-16k 1.1 % slower\n"
JOB = "https://gitlab.example/group/linux/-/jobs/31"


@pytest.fixture
def server() -> Generator[GitLab]:
    with gitlab_server(TOKEN) as gitlab:
        yield gitlab


@pytest.fixture
def run(fsjoule: CommandLine, tmp_path: Path) -> CommandLine:
    (tmp_path / "note.md").write_text(TOLD)
    return fsjoule


@pytest.fixture(autouse=True)
def pipeline(monkeypatch: pytest.MonkeyPatch, server: GitLab) -> None:
    for name, value in {
        "FSJOULE_GITLAB_TOKEN": TOKEN,
        "CI_SERVER_URL": server.url,
        "CI_PROJECT_ID": server.project,
        "CI_MERGE_REQUEST_PROJECT_ID": server.project,
        "CI_MERGE_REQUEST_IID": str(server.merge_request),
        "CI_PIPELINE_ID": "1000",
        "CI_PIPELINE_URL": "https://gitlab.example/group/linux/-/pipelines/1000",
        "CI_COMMIT_SHORT_SHA": "abc12345",
    }.items():
        monkeypatch.setenv(name, value)


def note(run: CommandLine) -> Done:
    return run("ci", "note", "note.md", "--job-url", JOB)


def test_the_first_one_is_posted_with_links(run: CommandLine, server: GitLab) -> None:
    done = note(run)
    assert done.code == 0, done.err
    assert done.err == "note on merge request !5: posted\n"
    (body,) = server.bodies()
    assert body.startswith("<!-- fsjoule note, pipeline 1000 -->\n**fsjoule gate: regressed**")
    assert f"[reports and run folders]({JOB}/artifacts/browse)" in body
    assert "commit abc12345 · [pipeline](https://gitlab.example/group/linux/-/pipelines/1000)" in body


def test_it_links_to_the_verdicts_page(run: CommandLine, server: GitLab, tmp_path: Path) -> None:
    links = [{"external_link": {"label": "The verdict", "url": f"{JOB}/artifacts/file/results/1/report.html"}}]
    (tmp_path / "annotations.json").write_text(json.dumps({"fsjoule": links}))
    assert note(run).code == 0
    assert f"\n[The verdict]({JOB}/artifacts/file/results/1/report.html) · commit" in server.bodies()[0]
    (tmp_path / "annotations.json").write_text("[]")
    done = note(run)
    assert (done.code, "the job's annotations are damaged" in done.err) == (2, True)


def test_the_next_one_takes_its_place_wherever_it_stands(
    run: CommandLine, server: GitLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(25):
        server.add(f"review comment {number}", author=1)
    note(run)
    server.add("one more comment", author=1)
    monkeypatch.setenv("CI_PIPELINE_ID", "1001")
    (tmp_path / "note.md").write_text("**fsjoule gate: unchanged or better**\n")
    done = note(run)
    assert done.err == "note on merge request !5: updated\n"
    assert len(server.notes) == 27
    assert server.notes[25]["body"].startswith(
        "<!-- fsjoule note, pipeline 1001 -->\n**fsjoule gate: unchanged or better**"
    )
    assert not [body for body in server.bodies() if "regressed" in body]


def test_it_links_to_the_job_that_left_it(run: CommandLine, server: GitLab, tmp_path: Path) -> None:
    (tmp_path / "job-url").write_text(f"{JOB}\n")
    assert run("ci", "note", "note.md").code == 0
    assert f"[job]({JOB})" in server.bodies()[0]
    (tmp_path / "job-url").write_text(f"{JOB}) /close ![](x")
    assert run("ci", "note", "note.md").code == 0
    assert "[job](" not in server.bodies()[0]


def test_what_a_merge_request_wrote_acts_on_nothing_and_calls_nobody(
    run: CommandLine, server: GitLab, tmp_path: Path
) -> None:
    calls = "@all a/b (@root) _x_@all é@all @\\_me &commat;all &#64;all &#x40;all &#0064;all &amp@all [](%40all)"
    (tmp_path / "note.md").write_text(f"/close\n  /merge\n6.12@run-1 &amp;#64;all {calls}\n")
    assert note(run).code == 0
    text = server.bodies()[0].partition("\n")[2]
    assert text.startswith("&#47;close\n  &#47;merge\n6.12@run-1 &amp;#64;all ")
    assert "(&#8203;%40all)" in text
    # GitLab's pattern of a mention, in what a browser would show.
    shown = html.unescape(text).replace("\\", "").replace("_x_", "x|")
    assert re.findall(r"(?<!\w)@[\w.]+", shown, re.ASCII) == []


@pytest.mark.parametrize("name", ["note.md", "annotations.json", "job-url"])
def test_a_link_among_the_artifacts_is_not_followed(
    run: CommandLine, server: GitLab, tmp_path: Path, name: str
) -> None:
    """It may lead to /proc/self/environ, where the token is."""
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/proc/self/environ")
    done = run("ci", "note", "note.md")
    assert (done.code, "a symbolic link, which is not followed" in done.err) == (2, True)
    assert server.asked == []


def test_the_token_is_not_sent_in_the_clear(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_SERVER_URL", "http://gitlab.example")
    done = note(run)
    assert (done.code, "the token is not sent to http://gitlab.example: that is not https" in done.err) == (2, True)


def test_a_boards_note_is_another_one(run: CommandLine, server: GitLab) -> None:
    note(run)
    for said in ("posted", "updated"):
        assert said in run("ci", "note", "note.md", "--name", "evk-1").err
    assert [body.partition(",")[0] for body in server.bodies()] == ["<!-- fsjoule note", "<!-- fsjoule note evk-1"]
    done = run("ci", "note", "note.md", "--name", "a -->")
    assert (done.code, "'a -->' is no name for a note" in done.err) == (2, True)


def test_somebody_elses_note_with_the_marker_is_left_alone(run: CommandLine, server: GitLab) -> None:
    quoted = "<!-- fsjoule note, pipeline 999 -->\nlook, I can do it too"
    server.add(quoted, author=1)
    assert note(run).err == "note on merge request !5: posted\n"
    assert server.bodies()[0] == quoted
    assert len(server.notes) == 2


def test_an_earlier_pipeline_does_not_overwrite_a_later_one(run: CommandLine, server: GitLab) -> None:
    later = server.add("<!-- fsjoule note, pipeline 2000 -->\nnewer")
    done = note(run)
    assert done.code == 0
    assert "left alone: it belongs to a later pipeline, 2000" in done.err
    assert later["body"].endswith("newer")
    assert len(server.notes) == 1


def test_a_gate_without_an_answer_replaces_the_old_answer(run: CommandLine, server: GitLab, tmp_path: Path) -> None:
    note(run)
    (tmp_path / "note.md").unlink()
    assert note(run).code == 0
    (body,) = server.bodies()
    assert "no answer" in body
    assert "regressed" not in body
    assert "its log says why" in body
    assert f"[job]({JOB})" in body
    # An earlier job failed: there is no log to look at.
    assert run("ci", "note", "note.md").code == 0
    (body,) = server.bodies()
    assert "its job did not run" in body


@pytest.mark.parametrize(
    ("missing", "why"), [("FSJOULE_GITLAB_TOKEN", "no token"), ("CI_MERGE_REQUEST_IID", "is not a")]
)
def test_without_token_or_merge_request_it_is_printed(
    run: CommandLine, server: GitLab, monkeypatch: pytest.MonkeyPatch, missing: str, why: str
) -> None:
    monkeypatch.delenv(missing)
    done = note(run)
    assert done.code == 0
    assert why in done.err
    assert "the note is printed instead" in done.err
    assert TOLD in done.out
    assert server.asked == []


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        (401, f"the token {TOKEN} is revoked", "needs the scope api"),
        (403, "403 Forbidden", "needs the scope api"),
        (404, "404 Project Not Found", "404"),
        (500, f"Internal error near Authorization: Bearer {TOKEN}", "500"),
    ],
)
def test_a_refusal_is_told_without_the_token(
    run: CommandLine, server: GitLab, status: int, message: str, told: str
) -> None:
    server.fail_with = (status, message)
    done = note(run)
    assert done.code == 7
    assert told in done.err
    assert "merge request !5" in done.err
    assert TOKEN not in done.out + done.err
    assert server.notes == []


@pytest.mark.parametrize("token", ["glpat-wrong_1", "glpat-two\nlines_1", "glpat-päth_1", "glpat-\u2026_1"])
def test_a_wrong_token_is_told_without_it(run: CommandLine, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("FSJOULE_GITLAB_TOKEN", token)
    done = note(run)
    assert done.code == 7
    assert "glpat" not in done.out + done.err
    assert "Traceback" not in done.err


def test_a_server_that_is_not_there(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("CI_SERVER_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        done = note(run)
    assert done.code == 7
    assert "could not be written" in done.err
    assert TOKEN not in done.err


def test_a_redirect_does_not_carry_the_token_elsewhere(run: CommandLine, server: GitLab) -> None:
    with gitlab_server("another") as other:
        server.redirect_to = other.url.replace("127.0.0.1", "localhost")
        done = note(run)
        assert done.code == 7
        assert other.headers
        assert TOKEN not in str(other.headers)
    assert TOKEN not in done.err


def test_a_number_that_is_none(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_MERGE_REQUEST_IID", "!5")
    done = note(run)
    assert done.code == 2
    assert "CI_MERGE_REQUEST_IID is '!5'" in done.err
