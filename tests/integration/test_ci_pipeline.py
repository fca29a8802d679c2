"""The pipeline: valid by GitLab's own schema, and which of its jobs run when."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pipeline_runner import PROJECT, Pipeline

PIPELINE = PROJECT / ".gitlab-ci.yml"

MERGE_REQUEST = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_COMMIT_BRANCH": None}
DEFAULT_BRANCH = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main"}
SCHEDULE = {"CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main"}
TAG = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": None, "CI_COMMIT_TAG": "v1.0"}
PLACE = {"PLACE_IMX6UL_EVK": "evk-1"}
INDEX = {"FSJOULE_INDEX": "postgresql://lab/index"}

BENCHED = ["bench", "gate", "note", "report"]
MATRIX = ["matrix", "matrix jobs"]
BISECT = ["bisect", "bisect issue"]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A repository of fsjoule's with nothing but its pipeline."""
    repository = tmp_path / "repository"
    (repository / "src" / "fsjoule").mkdir(parents=True)
    (repository / "src" / "fsjoule" / "__init__.py").touch()
    return _committed(repository)


def _committed(repository: Path) -> Pipeline:
    (repository / ".gitlab-ci.yml").write_bytes(PIPELINE.read_bytes())
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    for words in (
        ("init", "-q", "-b", "main"),
        ("remote", "add", "origin", "git@gitlab.example:group/project.git"),
        ("add", "-A"),
        (*identity, "commit", "-q", "-m", "pipeline"),
        ("update-ref", "refs/remotes/origin/main", "HEAD"),
        ("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"),
    ):
        subprocess.run(["git", *words], cwd=repository, check=True)
    return Pipeline(repository, repository.parent / "home")


def running(pipeline: Pipeline, *variables: Mapping[str, str | None]) -> list[str]:
    """The names of the jobs that run."""
    merged = {name: value for some in variables for name, value in some.items()}
    return sorted(job["name"] for job in pipeline.listed(merged) if job["when"] != "never")


def schema_errors(file: Path) -> str:
    program = Path(sys.executable).with_name("check-jsonschema")
    argv = [program, "--builtin-schema", "vendor.gitlab-ci", file]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_gitlabs_schema_takes_it(tmp_path: Path) -> None:
    assert schema_errors(PIPELINE) == ""
    # It does not look into templates, but into what becomes of them.
    whole = tmp_path / "whole.yml"
    whole.write_text(yaml.safe_dump(expanded()))
    assert schema_errors(whole) == ""
    whole.write_text(whole.read_text().replace("interruptible: false", "interruptable: false"))
    assert "interruptable" in schema_errors(whole)


@pytest.mark.parametrize(
    ("variables", "jobs"),
    [
        pytest.param([MERGE_REQUEST], ["lint", "unit", *BENCHED], id="merge request"),
        pytest.param([MERGE_REQUEST, PLACE], ["board imx6ul-evk", "lint", "unit", *BENCHED], id="with a board"),
        pytest.param([DEFAULT_BRANCH], ["lint", "pages", "tests", *MATRIX], id="default branch"),
        pytest.param([DEFAULT_BRANCH, INDEX], ["lint", "pages", "tests", *MATRIX], id="default branch with an index"),
        pytest.param([DEFAULT_BRANCH, PLACE], ["lint", "pages", "tests", *MATRIX], id="default branch with a board"),
        pytest.param([SCHEDULE], ["a-a", "pages", "tests", *MATRIX], id="schedule"),
        pytest.param([SCHEDULE, INDEX], ["a-a", "pages", "tests", *MATRIX], id="schedule with an index"),
        pytest.param([TAG], ["lint", "tests"], id="tag"),
        pytest.param([TAG, PLACE, INDEX], ["lint", "tests"], id="tag with everything"),
    ],
)
def test_which_jobs_run(pipeline: Pipeline, variables: list[Mapping[str, str | None]], jobs: list[str]) -> None:
    assert running(pipeline, *variables) == sorted(jobs)


@pytest.fixture
def kernel(tmp_path: Path) -> Pipeline:
    """A kernel's own repository."""
    arm = tmp_path / "linux" / "arch" / "arm"
    arm.mkdir(parents=True)
    (arm / "Kconfig").touch()
    return _committed(tmp_path / "linux")


def test_in_a_kernels_own_repository_there_are_no_tests_of_fsjoule(kernel: Pipeline) -> None:
    assert running(kernel, MERGE_REQUEST) == sorted(BENCHED)
    assert running(kernel, DEFAULT_BRANCH) == sorted(["pages", *MATRIX, *BISECT])
    assert running(kernel, SCHEDULE) == sorted(["a-a", "pages", *MATRIX])
    assert running(kernel, SCHEDULE, {"FSJOULE_BISECT": "1"}) == sorted(["a-a", "pages", *MATRIX, *BISECT])
    assert running(kernel, TAG) == []


def test_the_note_is_written_whatever_the_gate_said(pipeline: Pipeline) -> None:
    note = next(job for job in pipeline.listed(MERGE_REQUEST) if job["name"] == "note")
    assert (note["when"], note["allow_failure"]) == ("always", True)
    assert [need["job"] for need in note["needs"]] == ["gate"]


def test_a_bisection_by_hand_waits_for_a_person_and_one_by_schedule_does_not(kernel: Pipeline) -> None:
    by_hand, scheduled = (
        next(job for job in kernel.listed(variables) if job["name"] == "bisect")
        for variables in (DEFAULT_BRANCH, SCHEDULE | {"FSJOULE_BISECT": "1"})
    )
    assert (by_hand["when"], by_hand["allow_failure"]) == ("manual", True)
    assert scheduled["when"] == "on_success"
    job = expanded()["bisect"]
    assert job["variables"]["GIT_DEPTH"] == "0", "a shallow clone cannot be bisected"
    assert job["cache"]["when"] == "always", "the next job goes on"
    assert (job["timeout"], job["variables"]["RUNNER_SCRIPT_TIMEOUT"]) == ("12 hours", "11h30m")


def expanded() -> dict[str, Any]:
    """The pipeline's jobs with what they extend, as far as this file goes: a map is merged, anything else replaced."""
    jobs: dict[str, Any] = yaml.safe_load(PIPELINE.read_text())

    def whole(name: str) -> dict[str, Any]:
        own: dict[str, Any] = jobs[name]
        return _merged(whole(own["extends"]), own) if "extends" in own else own

    names = [name for name, job in jobs.items() if isinstance(job, dict) and not name.startswith(".")]
    return {
        name: {key: value for key, value in whole(name).items() if key != "extends"}
        for name in names
        if "script" in whole(name)
    }


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }
    return below | both


def test_jobs_that_hold_a_board() -> None:
    holding = {name: job for name, job in expanded().items() if name.startswith("board ")}
    assert list(holding) == ["board imx6ul-evk"]
    assert holding["board imx6ul-evk"]["variables"]["PLACE"] == "$PLACE_IMX6UL_EVK"
    for job in holding.values():
        assert job["interruptible"] is False
        assert job["resource_group"] == f"board/{job['variables']['PLACE']}"
        assert job["retry"] == {"max": 1, "when": ["runner_system_failure"], "exit_codes": [4]}
        assert job["script"][-1] == '.ci/with-board "$PLACE" .ci/bench'
        # After the job's own limit there would be no after_script.
        assert job["timeout"] == "4 hours"
        assert job["variables"]["RUNNER_SCRIPT_TIMEOUT"] == "3h40m"
        assert job["variables"]["RUNNER_AFTER_SCRIPT_TIMEOUT"] == "10m"
        assert job["after_script"][-2:] == ['.ci/release-board "$PLACE"', ".ci/keep"]
        assert job["tags"] == ["fsjoule-board"]
        assert job["artifacts"]["when"] == "always"
        assert job["artifacts"]["reports"]["junit"] == "junit.xml"


def test_the_child_pipelines_variables_are_its_own() -> None:
    """FS and so on of the whole pipeline, forwarded, would go before those of the child's jobs."""
    trigger = yaml.safe_load(PIPELINE.read_text())["matrix"]["trigger"]
    assert trigger["forward"] == {"yaml_variables": False}


def test_every_job_has_a_time_limit_and_a_cache() -> None:
    for name, job in expanded().items():
        assert job["timeout"], name
        assert job["cache"]["paths"] == [".cache/"], name


def test_what_the_jobs_start_is_there_and_can_be_started() -> None:
    started = set(re.findall(r"\.ci/[a-z-]+", PIPELINE.read_text())) - {".ci/kernel"}
    assert started
    for name in started:
        assert (PROJECT / name).stat().st_mode & 0o111, name
