"""The report as jobs of a pipeline make it: of a merge request, and for Pages."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from gitlab_server import JOB_TOKEN, GitLab, gitlab_server
from nights import Nights

from fsjoule.ci.gitlab.kept_runs import push_runs
from fsjoule.ci.gitlab.server import GitLabProject

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Generator[GitLab]:
    """It has the runs of four nights of the default branch."""
    Nights().write(tmp_path / "nightly", 4)
    with gitlab_server("another") as gitlab:
        push_runs(GitLabProject(gitlab.url, gitlab.project, JOB_TOKEN), [tmp_path / "nightly"])
        yield gitlab


def report(server: GitLab, project: Path, what: str) -> subprocess.CompletedProcess[str]:
    variables = {
        "CI_PROJECT_DIR": str(project),
        "CI_SERVER_URL": server.url,
        "CI_PROJECT_ID": server.project,
        "CI_JOB_TOKEN": JOB_TOKEN,
    }
    argv = [PROJECT / ".ci" / "report", what]
    return subprocess.run(argv, env=os.environ | variables, capture_output=True, text=True, timeout=600, check=False)


def runs_in(folder: Path) -> set[str]:
    """The runs whose measurements are the report's tests."""
    tests = [json.loads(file.read_bytes()) for file in (folder / "data" / "test-results").glob("*.json")]
    return {each["value"] for test in tests for each in test["parameters"] if each["name"] == "run"}


def test_of_a_merge_request(server: GitLab, tmp_path: Path) -> None:
    Nights(prefix="m").write(tmp_path / "results", 1)
    done = report(server, tmp_path, "report")
    assert done.returncode == 0, done.stderr
    assert "4 earlier runs fetched" in done.stderr
    assert "1 run, history of 4 earlier builds" in done.stderr
    assert runs_in(tmp_path / "report") == {"m00000"}
    assert (tmp_path / "report" / "trends.html").exists()


def test_of_a_merge_request_that_has_measured_nothing(server: GitLab, tmp_path: Path) -> None:
    server.fail_with = (503, "no")
    done = report(server, tmp_path, "report")
    assert done.returncode == 0, done.stderr
    assert "the report has no history" in done.stderr
    assert "0 runs, history of 0 earlier builds" in done.stderr
    assert runs_in(tmp_path / "report") == set()


def test_for_pages(server: GitLab, tmp_path: Path) -> None:
    server.fail_with = (503, "no")
    # The older site stays then.
    assert report(server, tmp_path, "public").returncode == 7
    assert not (tmp_path / "public").exists()
    server.fail_with = None
    done = report(server, tmp_path, "public")
    assert done.returncode == 0, done.stderr
    assert runs_in(tmp_path / "public") == {"n00003"}
