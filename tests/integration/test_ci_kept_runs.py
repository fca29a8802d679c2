"""Runs that outlive their pipeline: kept in and fetched from a server that speaks GitLab's packages API."""

from __future__ import annotations

import socket
from collections.abc import Generator
from pathlib import Path

import pytest
from command_line import CommandLine
from gitlab_server import JOB_TOKEN, GitLab, gitlab_server
from nights import Nights

from fsjoule.ci.gitlab.kept_runs import PACKAGE, pull_runs, push_runs
from fsjoule.ci.gitlab.server import GitLabProject
from fsjoule.store.reader import load_run

FILE = "run.tar.zst"
NIGHTS = Nights(board="nightly")
Packages = dict[tuple[str, str, str], bytes]


@pytest.fixture
def server() -> Generator[GitLab]:
    with gitlab_server("another") as gitlab:
        # More than a page of it is asked for.
        gitlab.per_page = 2
        yield gitlab


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch, server: GitLab) -> None:
    variables = {"CI_JOB_TOKEN": JOB_TOKEN, "CI_SERVER_URL": server.url, "CI_PROJECT_ID": server.project}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    return sorted(folder.name for folder in NIGHTS.write(tmp_path / "results", 5))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The packages of five nights, by name, version and file."""
    folders = NIGHTS.write(tmp_path_factory.mktemp("results"), 5)
    with gitlab_server("another") as gitlab:
        assert push_runs(GitLabProject(gitlab.url, gitlab.project, JOB_TOKEN), folders).uploaded == len(folders)
        return dict(gitlab.packages)


def test_runs_come_back_as_they_were(fsjoule: CommandLine, server: GitLab, names: list[str], tmp_path: Path) -> None:
    done = fsjoule("ci", "push")
    assert (done.code, done.err) == (0, "5 runs kept in the package registry, 0 already there\n")
    server.packages[f"{PACKAGE}-of-somebody-else", "9", FILE] = b""
    done = fsjoule("ci", "pull", "history", "--runs", "3")
    assert (done.code, done.err) == (0, "3 earlier runs fetched from the package registry, 0 already there\n")
    assert sorted(folder.name for folder in (tmp_path / "history").iterdir()) == names[2:]
    for name in names[2:]:
        before, after = load_run(tmp_path / "results" / name), load_run(tmp_path / "history" / name)
        assert after.run == before.run
        assert after.measurements == before.measurements


def test_nothing_is_sent_twice(fsjoule: CommandLine, server: GitLab, names: list[str]) -> None:
    fsjoule("ci", "push", f"results/{names[0]}", f"results/{names[1]}")
    fsjoule("ci", "pull", "history")
    assert fsjoule("ci", "push", "results").err == "3 runs kept in the package registry, 2 already there\n"
    server.asked.clear()
    assert fsjoule("ci", "pull", "history").err == "3 earlier runs fetched from the package registry, 2 already there\n"
    assert len([path for _, path in server.asked if path.endswith(FILE)]) == 3


NIGHT = "20250101T000000Z-evil-1"


def test_what_is_no_run_is_named_and_left_out(
    fsjoule: CommandLine, server: GitLab, kept: Packages, tmp_path: Path
) -> None:
    """What an archive may hold is the unit tests' (test_run_archives.py)."""
    server.packages |= {**kept, (PACKAGE, NIGHT, FILE): b"no archive"}
    done = fsjoule("ci", "pull", "at/history")
    assert done.code == 0
    assert "left out: 20250101T000000Z-evil-1: its archive is damaged" in done.err
    assert sorted(folder.name for folder in (tmp_path / "at" / "history").iterdir()) == sorted(n for _, n, _ in kept)


def test_a_run_without_its_file_costs_no_other(fsjoule: CommandLine, server: GitLab, names: list[str]) -> None:
    fsjoule("ci", "push")
    server.packages[PACKAGE, NIGHT, "another"] = b""
    done = fsjoule("ci", "pull", "history")
    assert done.code == 0
    assert "20250101T000000Z-evil-1: the registry has no run.tar.zst of it" in done.err
    assert f"{len(names)} earlier runs fetched" in done.err


def test_names_that_are_no_runs_are_not_asked_for(fsjoule: CommandLine, server: GitLab, names: list[str]) -> None:
    fsjoule("ci", "push")
    for name in ("99990101T000000Z-evil-1", "latest"):
        server.packages[PACKAGE, name, FILE] = server.packages[PACKAGE, names[0], FILE]
    done = fsjoule("ci", "pull", "history", "--runs", "5")
    assert (done.code, done.err) == (0, "5 earlier runs fetched from the package registry, 0 already there\n")


def test_outside_of_gitlab_nothing_is_asked(
    fsjoule: CommandLine, server: GitLab, monkeypatch: pytest.MonkeyPatch, names: list[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("CI_JOB_TOKEN")
    assert names
    for words in (("ci", "push"), ("ci", "pull", "history")):
        done = fsjoule(*words)
        assert done.code == 0
        assert "CI_JOB_TOKEN is not set" in done.err
    assert list((tmp_path / "history").iterdir()) == []
    assert server.asked == []


def test_a_token_that_may_not(
    fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, names: list[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CI_JOB_TOKEN", "job-wrong_1")
    assert names
    for words in (("ci", "push"), ("ci", "pull", "history")):
        done = fsjoule(*words)
        assert done.code == 7
        assert "401" in done.err
        assert "Job token permissions" in done.err
        assert "job-wrong_1" not in done.err
    assert list((tmp_path / "history").iterdir()) == []


def test_a_server_that_does_not_answer(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("CI_SERVER_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        done = fsjoule("ci", "push")
    assert names
    assert done.code == 7
    assert "could not be kept in the package registry" in done.err
    assert JOB_TOKEN not in done.err


def test_the_token_does_not_go_to_an_object_storage(
    fsjoule: CommandLine, server: GitLab, names: list[str], tmp_path: Path
) -> None:
    fsjoule("ci", "push", f"results/{names[0]}")
    with gitlab_server("another") as storage:
        server.storage = storage.url.replace("127.0.0.1", "localhost")
        assert fsjoule("ci", "pull", "history").code == 0
        assert "has no run.tar.zst" in fsjoule("ci", "pull", "history").err
        storage.bucket[names[0]] = server.packages[PACKAGE, names[0], FILE]
        assert fsjoule("ci", "pull", "history").code == 0
        assert [path for _, path in storage.asked] == [f"/bucket/{names[0]}"] * 3
        assert JOB_TOKEN not in str(storage.headers)
    assert [folder.name for folder in (tmp_path / "history").iterdir()] == names[:1]


def test_no_run_is_an_error(fsjoule: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    done = fsjoule("ci", "push")
    assert done.code == 2
    assert "there is no run folder" in done.err


def test_a_package_is_downloaded_up_to_its_limit(server: GitLab, tmp_path: Path) -> None:
    server.packages[PACKAGE, NIGHT, FILE] = b"no archive" * 100
    where = GitLabProject(server.url, server.project, JOB_TOKEN)
    for most_bytes, why in (
        (999, "it is too large for a run folder"),
        (1000, "its archive is damaged: invalid header"),
    ):
        found = pull_runs(where, tmp_path / "history", most=1, most_bytes=most_bytes)
        assert found.problems == (f"{NIGHT}: {why}",)
