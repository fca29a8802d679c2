"""The pipeline's board jobs under gitlab-runner: however a job or its runner ends, the board is off and the place free.

gitlab-runner is taken from PATH, or from FSJOULE_GITLAB_RUNNER. GitLab is a local server that speaks its API.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pipeline_runner
import pytest
from gitlab_server import GitLab, gitlab_server
from lab_leftovers import assert_free, assert_nothing_left
from pipeline_runner import PROJECT, Pipeline
from runner_server import RunnerJob
from waiting import wait_for

from fsjoule.host.paths import cache_dir
from fsjoule.virtual.lab import lab

_CONFIG: Final = PROJECT / "labgrid" / "runner" / "config.toml"
_RUNNER_LIMIT_S: Final = 120.0
_SECONDS: Final = {"minutes": 60, "hour": 3600, "hours": 3600}
_REPORTS: Final = {
    "junit": "junit.xml",
    "dotenv": ".env",
    "metrics": "metrics.txt",
    "annotations": "gl-annotations.json",
}

_REASONS: Final = ["script_failure", "job_execution_timeout", "job_canceled", "runner_interrupted"]


def program() -> str | None:
    """gitlab-runner, or None where there is none."""
    return os.environ.get("FSJOULE_GITLAB_RUNNER") or shutil.which("gitlab-runner")


@dataclass
class Runner:
    """A runner of its own process with one board, in the configuration that docs/ci.md gives for the lab's computer.

    `environment` is what its jobs get, `state` where its computer notes who holds a place.
    """

    name: str
    folder: Path
    gitlab: GitLab
    state: Path
    environment: Mapping[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    @property
    def token(self) -> str:
        return f"glrt-{self.name}"

    @property
    def log(self) -> Path:
        return self.folder / "runner.log"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "config.toml"
        config.write_text(self._config())
        self.gitlab.work.runners.add(self.token)
        ours = pipeline_runner.environment() | {"FSJOULE_STATE_DIR": str(self.state)}
        words = ("--config", str(config), "--working-directory", str(self.folder))
        with self.log.open("ab") as log:
            self.started.append(
                subprocess.Popen(
                    [str(program()), "run", *words],
                    cwd=self.folder,
                    env=ours,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def end(self, sent: signal.Signals) -> int:
        """Send a signal to the runner alone, not to its jobs; its exit code."""
        self.started[-1].send_signal(sent)
        return self.started[-1].wait(_RUNNER_LIMIT_S)

    def clean_up(self) -> None:
        """End what is left of it and of its jobs, which have process groups of their own in its session."""
        sessions = {process.pid for process in self.started}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if os.getsid(int(entry.name)) in sessions:
                        os.kill(int(entry.name), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        for process in self.started:
            process.wait(_RUNNER_LIMIT_S)

    def _config(self) -> str:
        """Strings, numbers and lists of strings are in TOML as they are in JSON."""
        whole = tomllib.loads(_CONFIG.read_text())
        board, *_ = whole.pop("runners")
        jobs = [f"{name}={value}" for name, value in self.environment.items()]
        board |= {"name": self.name, "url": self.gitlab.url, "token": self.token, "environment": jobs}
        board |= {"builds_dir": str(self.folder / "builds"), "cache_dir": str(self.folder / "cache")}
        above = [f"{name} = {json.dumps(value)}" for name, value in (whole | {"check_interval": 1}).items()]
        below = [f"{name} = {json.dumps(value)}" for name, value in board.items()]
        return "\n".join([*above, "[[runners]]", *below, ""])

    def give(
        self,
        name: str,
        job: Mapping[str, Any],
        variables: Mapping[str, str],
        *,
        masked: Mapping[str, str] | None = None,
        repository: Path | None = None,
        after: RunnerJob | None = None,
    ) -> RunnerJob:
        """Queue an expanded job for this runner, as GitLab words it; with a repository its HEAD is checked out."""
        commit = "0" * 40
        if repository is not None:
            argv = ("git", "rev-parse", "HEAD")
            commit = subprocess.run(argv, cwd=repository, check=True, capture_output=True, text=True).stdout.strip()

        def document(number: int) -> dict[str, Any]:
            predefined = {
                "CI": "true",
                "CI_JOB_ID": str(number),
                "CI_PIPELINE_ID": "100",
                "CI_JOB_URL": f"{self.gitlab.url}/group/project/-/jobs/{number}",
                "CI_COMMIT_SHA": commit,
                "CI_COMMIT_REF_SLUG": "change",
                "CI_DEFAULT_BRANCH": "main",
                "CI_SERVER_URL": self.gitlab.url,
                "CI_PROJECT_ID": self.gitlab.project,
                **variables,
            }
            return {
                "allow_git_fetch": True,
                "job_info": {"name": name, "stage": job["stage"], "project_id": 42, "project_name": "project"},
                "git_info": {
                    "repo_url": "" if repository is None else f"file://{repository}",
                    "repo_object_format": "sha1",
                    "ref": "change",
                    "ref_type": "branch",
                    "sha": commit,
                    "before_sha": "0" * 40,
                    "refspecs": ["+HEAD:refs/remotes/origin/change"],
                    "depth": 20,
                },
                "runner_info": {"timeout": _seconds(job["timeout"])},
                "variables": _variables(predefined)
                + _variables(job.get("variables", {}))
                + _variables(masked or {}, masked=True)
                + ([] if repository is not None else _variables({"GIT_STRATEGY": "none"})),
                "steps": _steps(job),
                "services": [],
                "artifacts": _artifacts(job.get("artifacts", {})),
                "cache": [{"untracked": False, **each} for each in job.get("cache", [])],
                "credentials": [],
                "dependencies": [] if after is None else [_dependency(after)],
                "features": {"trace_sections": True, "failure_reasons": _REASONS},
            }

        return self.gitlab.work.add(self.token, document)


def _seconds(text: str) -> int:
    number, unit = text.split()
    return int(number) * _SECONDS.get(unit, 1)


def _variables(values: Mapping[str, object], *, masked: bool = False) -> list[dict[str, object]]:
    return [{"key": key, "value": str(value), "public": not masked, "masked": masked} for key, value in values.items()]


def _steps(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    limit = _seconds(job["timeout"])
    script = [*job.get("before_script", []), *job["script"]]
    steps = [{"name": "script", "script": script, "timeout": limit, "when": "on_success", "allow_failure": False}]
    if after := job.get("after_script"):
        steps.append(
            {"name": "after_script", "script": after, "timeout": limit, "when": "always", "allow_failure": True}
        )
    return steps


def _artifacts(wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The archive is a zip file, each report a file by gzip, under the name that GitLab gives it."""
    when = wanted.get("when", "on_success")
    found: list[dict[str, Any]] = []
    if paths := wanted.get("paths"):
        found.append({"paths": paths, "when": when, "artifact_type": "archive", "artifact_format": "zip"})
    for kind, file in wanted.get("reports", {}).items():
        files = [file] if isinstance(file, str) else file
        named = {"name": _REPORTS[kind], "artifact_type": kind, "artifact_format": "gzip"}
        found.append({"paths": files, "when": "always", **named})
    return found


def _dependency(job: RunnerJob) -> dict[str, Any]:
    file = {"filename": "artifacts.zip", "size": len(job.artifacts["archive"])}
    name = job.document["job_info"]["name"]
    return {"id": job.number, "token": job.token, "name": name, "artifacts_file": file}


pytestmark = pytest.mark.skipif(
    program() is None, reason="gitlab-runner is neither in PATH nor named by FSJOULE_GITLAB_RUNNER"
)

TOKEN = "glpat-runner_4711"
BOARD = "imx6ul-evk:board"
_LIMIT_S = 300.0
# What a job does that is in the middle of it: board on, and then it takes its time and writes a line now and then.
WORK = "labgrid-client power on; for i in $(seq 600); do echo working $i; sleep 1; done"
SILENT = "labgrid-client power on; i=1; echo working $i; sleep 600"


@dataclass
class Project:
    """A merge request's jobs, on runners beside the lab."""

    folder: Path
    gitlab: GitLab
    handle: lab.LabHandle
    state: Path
    pipeline: Pipeline
    jobs: Mapping[str, Any]
    runners: list[Runner] = field(default_factory=list[Runner])

    def runner(self) -> Runner:
        """One more, started."""
        name = f"runner-{len(self.runners)}"
        path = f"{PROJECT / '.venv' / 'bin'}:{self.handle.environment['PATH']}"
        environment = {"LG_COORDINATOR": self.handle.environment["LG_COORDINATOR"], "PATH": path}
        made = Runner(name, self.folder / name, self.gitlab, self.state, environment)
        self.runners.append(made)
        made.start()
        return made

    def hold(self, runner: Runner, command: str, project: str = "group-project", **variables: str) -> RunnerJob:
        """The board's job, which holds the place while a command runs instead of a bench, with nothing to set up."""
        job = dict(self.jobs[BOARD])
        *_, held = job["script"]
        job["script"] = [held.replace("-- .ci/bench", f"-- bash -c '{command}'")]
        job["before_script"] = [f"ln -sfn {PROJECT}/.venv {PROJECT}/.ci .", "mkdir -p results; date > results/began"]
        limit = variables.pop("limit", job["timeout"])
        words = {"CI_PROJECT_PATH_SLUG": project, "PLACE_IMX6UL_EVK": self.handle.place}
        return runner.give(BOARD, {**job, "timeout": limit, "variables": job["variables"] | variables}, words)

    def whole(
        self, runner: Runner, name: str, *, script: Sequence[str] = (), after: RunnerJob | None = None, **variables: str
    ) -> RunnerJob:
        """A job as it is, with this computer's cache of cards instead of the job's own, and `script` behind its own."""
        job = dict(self.jobs[name])
        job["script"] = [*job["script"], *script]
        job["after_script"] = [line for line in job.get("after_script", []) if line != ".ci/keep"]
        job.pop("cache", None)
        kept = {"FSJOULE_CACHE_DIR": str(cache_dir()), "UV_CACHE_DIR": str(Path.home() / ".cache" / "uv")}
        job["variables"] = job["variables"] | kept | {"FS": "ext4"} | variables
        words = {
            "CI_PROJECT_PATH_SLUG": "group-project",
            "PLACE_IMX6UL_EVK": self.handle.place,
            "CI_MERGE_REQUEST_IID": str(self.gitlab.merge_request),
            "CI_MERGE_REQUEST_PROJECT_ID": self.gitlab.project,
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": self.pipeline.git("rev-parse", "HEAD"),
        }
        masked = {"FSJOULE_GITLAB_TOKEN": TOKEN}
        return runner.give(name, job, words, masked=masked, repository=self.pipeline.repository, after=after)


def told(job: RunnerJob, words: str) -> None:
    wait_for(lambda: words in job.log, lambda: job.log, _LIMIT_S)


def ended(job: RunnerJob) -> None:
    wait_for(lambda: job.ended, lambda: job.log, _LIMIT_S)


def working(project: Project, runner: Runner, command: str = WORK, **variables: str) -> RunnerJob:
    """A job in the middle of its work."""
    job = project.hold(runner, command, **variables)
    told(job, "working 1")
    assert not free()
    return job


def free() -> bool:
    status = lab.status("virtual")
    return status.holder is None and status.board is not None and status.board["power"] == "off"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("state")
        monkeypatch.setenv("FSJOULE_STATE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def handle(state: Path) -> Generator[lab.LabHandle]:
    handle = lab.up("virtual", owner_pid=os.getpid())
    yield handle
    assert lab.down("virtual")
    assert_nothing_left(state, state / "devices")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return Pipeline.ours(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def jobs(pipeline: Pipeline) -> Mapping[str, Any]:
    """The jobs of fsjoule's own merge requests, with a board."""
    merge_request = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_COMMIT_BRANCH": None}
    jobs = pipeline.expanded(merge_request | {"PLACE_IMX6UL_EVK": "virtual"})
    # GitLab gives each job of a matrix its row's variables, before the job's own.
    (row,) = jobs[BOARD].pop("parallel")["matrix"]
    jobs[BOARD]["variables"] |= {name: value for name, (value,) in row.items()}
    return jobs


@pytest.fixture
def project(
    tmp_path: Path, state: Path, handle: lab.LabHandle, pipeline: Pipeline, jobs: Mapping[str, Any]
) -> Generator[Project]:
    assert_free()
    with gitlab_server(TOKEN) as gitlab:
        made = Project(tmp_path, gitlab, handle, state, pipeline, jobs)
        try:
            yield made
        finally:
            for runner in made.runners:
                runner.clean_up()
                sys.stdout.write(runner.log.read_text(errors="replace"))
            for job in gitlab.work.jobs.values():
                sys.stdout.write(f"{job.number} {job.state} {job.failure_reason} {list(job.artifacts)}\n{job.log}\n")
    assert_free()


def test_a_job_that_holds_the_board_passes(project: Project) -> None:
    job = project.hold(project.runner(), "labgrid-client power on; labgrid-client show")
    ended(job)
    assert job.state == "success", job.log
    assert "acquired: " in job.log
    assert "results/began" in job.files
    assert_free()


@pytest.mark.parametrize("force", [False, True], ids=["cancelled", "cancelled by force"])
def test_a_job_that_is_cancelled_while_it_holds_the_board(project: Project, force: bool) -> None:
    job = working(project, project.runner())
    job.cancel(force=force)
    if force:
        # The runner lets it go at once, without an after_script.
        wait_for(free, lambda: job.log, _LIMIT_S)
        assert "Running after_script" not in job.log
    else:
        ended(job)
        assert (job.state, job.failure_reason) == ("failed", "job_canceled")
        assert "Running after_script" in job.log
    assert_free()


def test_a_job_that_reaches_the_limit_of_its_script(project: Project) -> None:
    job = working(project, project.runner(), RUNNER_SCRIPT_TIMEOUT="25s")
    ended(job)
    assert (job.state, job.failure_reason) == ("failed", "job_execution_timeout"), job.log
    assert "Running after_script" in job.log
    assert "results/began" in job.files
    assert_free()


def test_a_job_that_reaches_its_own_limit(project: Project) -> None:
    """Without after_script, because the limit of its script is later."""
    job = working(project, project.runner(), limit="25 seconds")
    ended(job)
    assert (job.state, job.failure_reason) == ("failed", "job_execution_timeout"), job.log
    assert "Running after_script" not in job.log
    wait_for(free, lambda: job.log, _LIMIT_S)


def test_a_runner_that_is_stopped(project: Project) -> None:
    runner = project.runner()
    job = working(project, runner)
    runner.end(signal.SIGTERM)
    wait_for(free, lambda: job.log, _LIMIT_S)
    assert (job.state, job.failure_reason) == ("failed", "runner_interrupted")


@pytest.mark.parametrize(
    ("command", "at_once"),
    [
        pytest.param(SILENT, False, id="without a next job"),
        pytest.param(SILENT, True, id="with a next job at once"),
        pytest.param(WORK, True, id="and its job could not write"),
    ],
)
def test_a_runner_that_is_killed(project: Project, command: str, at_once: bool) -> None:
    """Its job cannot write any more, or has nothing to write."""
    runner = project.runner()
    first = working(project, runner, command)
    runner.end(signal.SIGKILL)
    if not at_once:
        wait_for(free, lambda: first.log, _LIMIT_S)
    second = project.hold(runner, "echo passed")
    runner.start()
    ended(second)
    assert second.state == "success", second.log
    assert "passed" in second.log
    assert not first.ended


@pytest.mark.parametrize("other", ["group-project", "group-other"], ids=["of one project", "of two projects"])
def test_two_runners_with_one_board(project: Project, other: str) -> None:
    waited_for = project.folder / "second-waits"
    work = f"i=0; until [ -e {waited_for} ]; do i=$((i + 1)); echo working $i; sleep 1; done"
    first = working(project, project.runner(), work)
    second = project.hold(project.runner(), "echo passed", other)
    told(second, "waiting for the place")
    waited_for.touch()
    ended(second)
    assert (first.state, second.state) == ("success", "success"), first.log + second.log
    waiting = [line for line in second.log.splitlines() if "waiting for the place" in line]
    assert len(waiting) < 5, "a line a minute"
    assert "/group-project since " in waiting[0]


def test_exit_codes_reach_gitlab(project: Project) -> None:
    """GitLab itself decides by them: which failure is allowed, and which job is tried once more."""
    runner = project.runner()
    for code in (1, 3, 4):
        job = project.hold(runner, f"exit {code}")
        ended(job)
        assert (job.state, job.failure_reason, job.exit_code) == ("failed", "script_failure", code), job.log
    assert project.jobs["fsjoule:a-a"]["allow_failure"]["exit_codes"] == [1, 3]
    assert "allow_failure" not in project.jobs["fsjoule:gate"]
    assert project.jobs[BOARD]["retry"]["exit_codes"] == [4]


def test_a_bench_on_the_board(project: Project) -> None:
    job = project.whole(project.runner(), BOARD, ENVIRONMENT="env/virtual.yaml", PYTEST_ADDOPTS="-k mount")
    ended(job)
    assert job.state == "success", job.log
    assert any(name.endswith("/report.html") for name in job.files)
    assert b"<testsuite" in gzip.decompress(job.artifacts["junit"])
    assert_free()


def test_a_gate_and_its_note_whose_token_is_masked(project: Project) -> None:
    runner = project.runner()
    gate = project.whole(runner, "fsjoule:gate")
    ended(gate)
    assert gate.state == "success", gate.log
    assert sorted(gate.files) == ["job-url", "note.md"]
    assert "dotenv" not in gate.artifacts
    shown = ('echo "the token is $FSJOULE_GITLAB_TOKEN"',)
    # The branch's own revision, because the note's job checks nothing out.
    project.pipeline.git("branch", "-f", "change")
    own = {"FSJOULE_REPOSITORY": f"file://{project.pipeline.repository}", "FSJOULE_REVISION": "change"}
    note = project.whole(runner, "fsjoule:note", script=shown, after=gate, **own)
    ended(note)
    assert note.state == "success", note.log
    (posted,) = project.gitlab.bodies()
    assert "fsjoule gate: identical" in posted
    assert f"[job]({project.gitlab.url}/group/project/-/jobs/{gate.number})" in posted
    assert "the token is [MASKED]" in note.log
    assert TOKEN not in note.log
