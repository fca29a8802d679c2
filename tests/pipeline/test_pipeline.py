"""The merge-request pipeline, run for real by gitlab-ci-local: without a change, with a slower kernel, killed half-way.

GitLab itself is a local server: it takes the notes, and keeps the runs of the default branch.

make test-pipeline: half an hour and more. Its lint and unit tests are left to `make lint` and `make test`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from gitlab_server import JOB_TOKEN, GitLab, gitlab_server
from lab_leftovers import assert_free, assert_nothing_left
from pipeline_runner import Pipeline
from waiting import wait_for

from fsjoule.ci.gitlab.kept_runs import push_runs
from fsjoule.ci.gitlab.server import GitLabProject
from fsjoule.host.paths import cache_dir
from fsjoule.model import RunStatus
from fsjoule.store.reader import load_run
from fsjoule.virtual.lab import lab

TOKEN = "glpat-pipeline_4711"
# Debian's 6.12 reads at random 8 % slower than its 6.1 from ext4 (docs/deterministic-figures.md).
KERNEL, SLOWER = "6.1", "6.12"
BOARD = "imx6ul-evk:board"
_LIMIT_S = 3600.0


@dataclass
class Project:
    """A clone with this working tree's files, its merge request on a GitLab, and a lab for the hardware job."""

    pipeline: Pipeline
    gitlab: GitLab
    variables: dict[str, str | None]
    base: str
    runs: int = field(default=0)

    def set_kernel(self, kernel: str) -> None:
        (self.pipeline.repository / ".ci" / "kernel").write_text(f"{kernel}\n")
        self.pipeline.git("commit", "-q", "--allow-empty", "-am", f"kernel {kernel}")

    def start(self, *jobs: str) -> tuple[subprocess.Popen[bytes], Path]:
        self.runs += 1
        log = self.pipeline.repository.parent / f"pipeline-{self.runs}.log"
        variables = self.variables | {
            "CI_PIPELINE_ID": str(1000 + self.runs),
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": self.base,
        }
        return self.pipeline.start(*jobs, variables=variables, log=log), log

    def run(self, *jobs: str) -> tuple[int, str]:
        """The exit code and the log of a pipeline."""
        process, log = self.start(*jobs)
        try:
            code = process.wait(_LIMIT_S)
        finally:
            end(process)
        text = log.read_text(errors="replace")
        assert TOKEN not in text
        assert JOB_TOKEN not in text
        return code, text

    @property
    def results(self) -> list[Path]:
        return sorted((self.pipeline.repository / "results").glob("*/run.json"))


def folder_of(job: str) -> str:
    """gitlab-ci-local's folder for a job's artifacts: in base64 what no path should have."""
    return job.replace(":", "Og")


def failed_tests(report: Path) -> list[str]:
    """What Allure's report shows as failed: regressions."""
    tests = [json.loads(file.read_bytes()) for file in (report / "data" / "test-results").glob("*.json")]
    assert tests
    return [test["name"] for test in tests if test["status"] == "failed"]


def end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a pipeline, as a cancelled one is ended: all of its session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getsid(int(entry.name)) == process.pid:
                    os.kill(int(entry.name), signal.SIGTERM)
            except ProcessLookupError:
                continue


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> Generator[lab.LabHandle]:
    """The lab of the hardware job, which has a place on a coordinator like any other."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        state = tmp_path_factory.mktemp("lab")
        monkeypatch.setenv("FSJOULE_STATE_DIR", str(state))
        handle = lab.up("virtual", owner_pid=os.getpid())
        yield handle
        assert lab.down("virtual")
        assert_nothing_left(state, state / "devices")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Generator[Project]:
    folder = tmp_path_factory.mktemp("project")
    pipeline = Pipeline.ours(folder)
    with gitlab_server(TOKEN) as gitlab:
        variables: dict[str, str | None] = {
            "CI_PIPELINE_SOURCE": "merge_request_event",
            "CI_COMMIT_BRANCH": None,
            "CI_MERGE_REQUEST_IID": str(gitlab.merge_request),
            "CI_MERGE_REQUEST_PROJECT_ID": gitlab.project,
            "CI_SERVER_URL": gitlab.url,
            "CI_PROJECT_ID": gitlab.project,
            "CI_JOB_TOKEN": JOB_TOKEN,
            # The tool's own is where a container would have it.
            "CI_PROJECT_DIR": str(pipeline.repository),
            "FSJOULE_GITLAB_TOKEN": TOKEN,
            # The job with the token checks nothing out: it clones this revision.
            "FSJOULE_REPOSITORY": f"file://{pipeline.repository}",
            "FSJOULE_REVISION": pipeline.git("branch", "--show-current"),
            "FS": "ext4",
            # What the runner of a team keeps from job to job.
            "FSJOULE_CACHE_DIR": str(cache_dir()),
            "UV_CACHE_DIR": str(Path.home() / ".cache" / "uv"),
            "FSJOULE_STATE_DIR": str(tmp_path_factory.mktemp("state")),
        }
        made = Project(pipeline, gitlab, variables, base="")
        made.set_kernel(KERNEL)
        made.base = pipeline.git("rev-parse", "HEAD")
        # A merge request without any change is not measured (`changes`).
        (pipeline.repository / "CHANGED").touch()
        pipeline.git("add", "CHANGED")
        pipeline.git("commit", "-q", "-m", "a change that is not the kernel's")
        yield made


def test_no_change(project: Project) -> None:
    project.set_kernel(KERNEL)
    code, log = project.run("fsjoule:bench", "fsjoule:gate", "fsjoule:note", "fsjoule:report")
    assert code == 0, log
    (note,) = project.gitlab.bodies()
    assert "fsjoule gate: identical" in note
    assert "/artifacts/browse" in note
    artifacts = project.pipeline.repository / ".gitlab-ci-local" / "artifacts"
    (folder,) = (artifacts / folder_of("fsjoule:bench") / "results").iterdir()
    run = load_run(folder)
    assert run.run.status is RunStatus.COMPLETE
    assert (folder / "report.html").exists()
    tests = list(ET.parse(artifacts / folder_of("fsjoule:bench") / "junit.xml").getroot().iter("testcase"))
    assert len(tests) == len(run.measurements) > 0
    assert (artifacts / folder_of("fsjoule:gate") / "note.md").exists()
    assert not failed_tests(artifacts / folder_of("fsjoule:report") / "report")
    assert "history of 0 earlier builds" in log
    # As the default branch's jobs do.
    registry = GitLabProject(project.gitlab.url, project.gitlab.project, JOB_TOKEN)
    assert push_runs(registry, [folder]).uploaded == 1


def test_a_kernel_against_itself(project: Project) -> None:
    """The schedule's: unlike above the gate measures."""
    before = len(project.results)
    project.variables |= {"CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main", "CI_MERGE_REQUEST_IID": None}
    try:
        code, log = project.run("fsjoule:a-a")
    finally:
        project.variables |= {
            "CI_PIPELINE_SOURCE": "merge_request_event",
            "CI_COMMIT_BRANCH": None,
            "CI_MERGE_REQUEST_IID": str(project.gitlab.merge_request),
        }
    assert code == 0, log
    assert len(project.results) == before + 1
    note = project.pipeline.repository / ".gitlab-ci-local" / "artifacts" / folder_of("fsjoule:a-a") / "note.md"
    assert "fsjoule gate: unchanged or better" in note.read_text()


def test_a_slower_kernel(project: Project) -> None:
    before = len(project.results)
    project.set_kernel(SLOWER)
    code, log = project.run("fsjoule:gate", "fsjoule:note", "fsjoule:report")
    assert code == 1, log
    (note,) = project.gitlab.bodies()
    assert "fsjoule gate: regressed" in note
    assert "ext4 randread-16k" in note
    assert "% interval" in note
    assert len(project.results) == before + 1
    report = project.pipeline.repository / ".gitlab-ci-local" / "artifacts" / folder_of("fsjoule:report") / "report"
    assert any("ext4 randread-16k" in name for name in failed_tests(report))
    assert "1 earlier run fetched from the package registry" in log
    assert "history of 1 earlier build" in log


@pytest.fixture
def board(project: Project, handle: lab.LabHandle) -> Generator[Project]:
    """The project with a board: the lab's place, by its coordinator."""
    lab_variables = {name: value for name, value in handle.environment.items() if name != "PATH"}
    path = {"PATH": handle.environment["PATH"]}
    more = {"PLACE_IMX6UL_EVK": handle.place, "ENVIRONMENT": "env/virtual.yaml", **lab_variables, **path}
    before = dict(project.variables)
    project.variables |= more
    project.set_kernel(KERNEL)
    yield project
    project.variables = before


def test_a_job_with_a_board(board: Project) -> None:
    before = len(board.results)
    code, log = board.run(BOARD)
    assert code == 0, log
    assert "place 'virtual' acquired" in log
    assert len(board.results) == before + 1
    assert_free()


def test_a_job_with_a_board_that_is_killed_half_way(board: Project) -> None:
    before = len(board.results)
    process, log = board.start(BOARD)
    try:
        wait_for(
            lambda: (
                bool(list(board.pipeline.repository.glob("results/*/measurements/01-*/measurement.json")))
                and len(board.results) > before
                and "[  1/" in log.read_text(errors="replace")
            ),
            lambda: log.read_text(errors="replace"),
            _LIMIT_S,
        )
        holder = lab.status("virtual").holder
        assert holder is not None
        assert holder.startswith(f"{socket.gethostname()}/")
    finally:
        end(process)
    assert process.wait(_LIMIT_S) != 0
    wait_for(lambda: lab.status("virtual").holder is None, lambda: log.read_text(errors="replace"), _LIMIT_S)
    assert_free()
