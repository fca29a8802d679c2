"""gitlab-runner itself, where this computer has it, with the project's configuration and the pipeline's own jobs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pipeline_runner
from gitlab_server import GitLab
from pipeline_runner import PROJECT
from runner_server import RunnerJob

_CONFIG: Final = PROJECT / "labgrid" / "runner" / "config.toml"
_LIMIT_S: Final = 120.0
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
        return self.started[-1].wait(_LIMIT_S)

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
            process.wait(_LIMIT_S)

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
