"""The pipeline and its component: valid by GitLab's own schema, and which of their jobs run when."""

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

from fsjoule.ci.gitlab.child_pipeline import COMPONENT, component

PIPELINE = PROJECT / ".gitlab-ci.yml"

MERGE_REQUEST = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_COMMIT_BRANCH": None}
DEFAULT_BRANCH = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main"}
SCHEDULE = {"CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main"}
TAG = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": None, "CI_COMMIT_TAG": "v1.0"}
PLACE = {"PLACE_IMX6UL_EVK": "evk-1"}
INDEX = {"FSJOULE_INDEX": "postgresql://lab/index"}

BENCHED = ["fsjoule:bench", "fsjoule:gate", "fsjoule:note", "fsjoule:report"]
MATRIX = ["fsjoule:matrix", "fsjoule:matrix-jobs"]
NIGHTLY = ["fsjoule:a-a", "fsjoule:pages", *MATRIX]
BISECT = ["fsjoule:bisect", "fsjoule:bisect-issue"]

# A repository with jobs, stages and settings of its own, one of them called as fsjoule's own job.
FOREIGN = """\
stages: [build, test, deploy]
variables: {FS: ours, SUITE: ours}
default: {image: alpine, before_script: [exit 1]}
include:
  - local: fsjoule.yml
    inputs:
      repository: https://gitlab.example/lab/fsjoule.git
      changes: ["fs/**/*", "drivers/mmc/**/*"]
      bisect: true
      a_a: true
      boards: [{PLACE: rpi4}, {PLACE: [evk-1, evk-2], ENVIRONMENT: env/evk.yaml}]
      board_bench: true
      board_gate: true
lint:
  stage: build
  script: [echo ours]
  rules:
    - when: always
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A repository of fsjoule's with nothing but its pipeline, and a commit on a branch."""
    repository = tmp_path / "repository"
    (repository / "src" / "fsjoule").mkdir(parents=True)
    (repository / "src" / "fsjoule" / "__init__.py").touch()
    (repository / "templates").mkdir()
    (repository / COMPONENT).write_bytes((PROJECT / COMPONENT).read_bytes())
    (repository / ".gitlab-ci.yml").write_bytes(PIPELINE.read_bytes())
    pipeline = _committed(repository)
    _changed(pipeline, ".ci/kernel")
    return pipeline


IDENTITY = ("-c", "user.name=test", "-c", "user.email=test@example.org")


def _git(repository: Path, *words: str) -> None:
    subprocess.run(["git", *IDENTITY, *words], cwd=repository, check=True)


def _committed(repository: Path) -> Pipeline:
    for words in (
        ("init", "-q", "-b", "main"),
        ("remote", "add", "origin", "git@gitlab.example:group/project.git"),
        ("add", "-A"),
        ("commit", "-q", "-m", "pipeline"),
        ("update-ref", "refs/remotes/origin/main", "HEAD"),
        ("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"),
    ):
        _git(repository, *words)
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
        pytest.param(
            [MERGE_REQUEST, PLACE],
            ["imx6ul-evk:board: [$PLACE_IMX6UL_EVK,env/boards/imx6ul-evk.yaml]", "lint", "unit", *BENCHED],
            id="with a board",
        ),
        pytest.param([DEFAULT_BRANCH], ["lint", "fsjoule:pages", "tests", *MATRIX], id="default branch"),
        pytest.param([DEFAULT_BRANCH, INDEX, PLACE], ["lint", "fsjoule:pages", "tests", *MATRIX], id="with everything"),
        pytest.param([SCHEDULE], ["tests", *NIGHTLY], id="schedule"),
        pytest.param([SCHEDULE, INDEX], ["tests", *NIGHTLY], id="schedule with an index"),
        pytest.param([TAG], ["lint", "tests"], id="tag"),
        pytest.param([TAG, PLACE, INDEX], ["lint", "tests"], id="tag with everything"),
    ],
)
def test_which_jobs_run(pipeline: Pipeline, variables: list[Mapping[str, str | None]], jobs: list[str]) -> None:
    assert running(pipeline, *variables) == sorted(jobs)


def test_a_change_of_the_meter_builds_its_firmware(pipeline: Pipeline) -> None:
    _changed(pipeline, "meter/src/main.c", branch="firmware")
    assert running(pipeline, MERGE_REQUEST) == sorted(["firmware", "lint", "unit", *BENCHED])
    assert running(pipeline, DEFAULT_BRANCH) == sorted(["lint", "fsjoule:pages", "tests", *MATRIX])


@pytest.fixture
def kernel(tmp_path: Path) -> Pipeline:
    """A kernel's own repository, with a pipeline that includes the component for three boards."""
    arm = tmp_path / "linux" / "arch" / "arm"
    arm.mkdir(parents=True)
    (arm / "Kconfig").touch()
    (tmp_path / "linux" / "fsjoule.yml").write_bytes((PROJECT / COMPONENT).read_bytes())
    (tmp_path / "linux" / ".gitlab-ci.yml").write_text(FOREIGN)
    return _committed(tmp_path / "linux")


def _changed(pipeline: Pipeline, file: str, branch: str = "change") -> None:
    path = pipeline.repository / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    _git(pipeline.repository, "checkout", "-q", "-b", branch)
    _git(pipeline.repository, "add", "-A")
    _git(pipeline.repository, "commit", "-q", "-m", "change")


def test_a_foreign_repository_keeps_its_jobs_and_gets_ours(kernel: Pipeline) -> None:
    assert running(kernel, DEFAULT_BRANCH) == sorted(["lint", *BISECT])
    assert running(kernel, SCHEDULE) == ["fsjoule:a-a", "lint"]
    assert running(kernel, SCHEDULE, {"FSJOULE_BISECT": "1"}) == sorted(["fsjoule:a-a", "lint", *BISECT])
    assert running(kernel, TAG) == ["lint"]
    assert {job["stage"] for job in kernel.listed(TAG) if job["name"] != "lint"} == {"test"}
    _changed(kernel, "fs/ext4/file.c")
    jobs = ("board", "board-gate", "board-note")
    boards = ("rpi4", "evk-1,env/evk.yaml", "evk-2,env/evk.yaml")
    assert running(kernel, MERGE_REQUEST) == sorted(
        ["lint", *BENCHED, *(f"fsjoule:{job}: [{board}]" for job in jobs for board in boards)]
    )


def test_a_change_elsewhere_is_not_measured(kernel: Pipeline) -> None:
    _changed(kernel, "Documentation/index.rst")
    assert running(kernel, MERGE_REQUEST) == ["lint"]


def test_nothing_of_the_repositorys_gets_into_our_jobs() -> None:
    """Globals would: a job's own keyword goes before `default`, its own variable before the repository's."""
    for name, job in expanded({"a_a": True, "bisect": True, "matrix": True, "pages": True}).items():
        assert {"image", "before_script", "stage"} <= set(job), name
        assert job["inherit"] == {"default": False}, f"{name}: an after_script of theirs"
        assert job["variables"]["GIT_STRATEGY"] in {"fetch", "none"}, f"{name}: none of theirs would leave no .ci"
        if "measuring" in name or ".ci/gate" in str(job["script"]):
            assert {"FS", "SUITE", "GATE_POLICY", "GATE_ENVIRONMENT"} <= set(job["variables"]), name
    document = yaml.safe_load_all((PROJECT / COMPONENT).read_text())
    assert not {"default", "variables", "stages", "workflow", "include"} & set(list(document)[1])


def test_what_has_the_token_runs_no_code_of_a_merge_request_and_takes_no_variable_from_one() -> None:
    jobs = expanded({"bisect": True})
    telling = {name: job for name, job in jobs.items() if job.get("environment", {}).get("name") == "fsjoule-note"}
    assert list(telling) == ["fsjoule:note", "fsjoule:board-note", "fsjoule:bisect-issue"]
    for name, job in telling.items():
        assert job["variables"]["GIT_STRATEGY"] == "none", name
        # A runner's folder may have what an earlier job left in it: fsjoule is always a clone of its own.
        _, cleared, cloned, entered, prepared = job["before_script"]
        assert (cleared, entered, prepared) == ("rm -rf .fsjoule", "cd .fsjoule", ".ci/prepare"), name
        assert cloned.endswith('"$FSJOULE_REVISION" "${FSJOULE_REPOSITORY:-$CI_REPOSITORY_URL}" .fsjoule'), name
        assert all(line.startswith(".venv/bin/fsjoule ci ") for line in job["script"]), name
        for needed in job["needs"]:
            assert "dotenv" not in jobs[needed]["artifacts"].get("reports", {}), name


def test_the_note_is_written_whatever_the_gate_said(pipeline: Pipeline) -> None:
    note = next(job for job in pipeline.listed(MERGE_REQUEST) if job["name"] == "fsjoule:note")
    assert (note["when"], note["allow_failure"]) == ("always", True)
    assert [need["job"] for need in note["needs"]] == ["fsjoule:gate"]


def test_a_bisection_by_hand_waits_for_a_person_and_one_by_schedule_does_not(kernel: Pipeline) -> None:
    by_hand, scheduled = (
        next(job for job in kernel.listed(variables) if job["name"] == "fsjoule:bisect")
        for variables in (DEFAULT_BRANCH, SCHEDULE | {"FSJOULE_BISECT": "1"})
    )
    assert (by_hand["when"], by_hand["allow_failure"]) == ("manual", True)
    assert scheduled["when"] == "on_success"
    job = expanded()["fsjoule:bisect"]
    assert job["variables"]["GIT_DEPTH"] == "0", "a shallow clone cannot be bisected"
    assert job["cache"]["when"] == "always", "the next job goes on"
    assert (job["timeout"], job["variables"]["RUNNER_SCRIPT_TIMEOUT"]) == ("12 hours", "11h30m")


def expanded(inputs: Mapping[str, object] | None = None) -> dict[str, Any]:
    """The component's jobs with what they extend: a map is merged, anything else replaced."""
    jobs = component(PROJECT, inputs or {})

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
    boards = [{"PLACE": "rpi4"}, {"PLACE": ["evk-1", "evk-2"], "ENVIRONMENT": "env/evk.yaml"}]
    holding = {name: job for name, job in expanded({"boards": boards}).items() if "place hold" in str(job["script"])}
    assert list(holding) == ["fsjoule:board", "fsjoule:board-gate"]
    for name, job in holding.items():
        assert job["parallel"] == {"matrix": boards}
        assert job["variables"]["ENVIRONMENT"] == "env/boards/$PLACE.yaml", "of a board that names none"
        assert job["interruptible"] is False
        assert job["resource_group"] == "board/$PLACE"
        assert job["retry"] == {"max": 1, "when": ["runner_system_failure"], "exit_codes": [4]}
        held, _, command = job["script"][-1].partition(" -- ")
        assert held == (
            '.venv/bin/fsjoule place hold --place "$PLACE" --wait "$BOARD_WAIT" --priority "$BOARD_PRIORITY"'
        )
        assert command == f".ci/{'gate' if name.endswith('gate') else 'bench'}"
        assert job["variables"]["BOARD_WAIT"] == "1h"
        # After the job's own limit there would be no after_script.
        assert job["timeout"] == "4 hours"
        assert job["variables"]["RUNNER_SCRIPT_TIMEOUT"] == "3h40m"
        assert job["variables"]["RUNNER_AFTER_SCRIPT_TIMEOUT"] == "10m"
        assert job["after_script"][-2:] == ['.venv/bin/fsjoule place release --place "$PLACE"', ".ci/keep"]
        assert job["tags"] == ["fsjoule-board"]
        assert job["needs"] == [], "the board does not wait for the virtual gate"
        assert job["artifacts"]["when"] == "always"
    assert holding["fsjoule:board"]["artifacts"]["reports"]["junit"] == "junit.xml"


def test_the_child_pipelines_variables_are_its_own() -> None:
    """FS and so on of the whole pipeline, forwarded, would go before those of the child's jobs."""
    assert component(PROJECT, {})["fsjoule:matrix"]["trigger"]["forward"] == {"yaml_variables": False}


def test_every_job_has_a_time_limit_and_only_jobs_with_cards_a_cache() -> None:
    for name, job in expanded().items():
        assert job["timeout"], name
        cards = "FSJOULE_CACHE_DIR" in job["variables"]
        assert cards == any(word in name for word in ("bench", "gate", "board", "a-a", "bisect")) & (
            "note" not in name
        ) & ("issue" not in name), name
        assert ("cache" in job) == cards, name
        if cards:
            assert (job["cache"]["paths"], job["cache"]["when"]) == ([".cache/"], "always"), name


def test_what_the_jobs_start_is_there_and_can_be_started() -> None:
    started = set(re.findall(r"\.ci/[a-z-]+", (PROJECT / COMPONENT).read_text())) - {".ci/kernel"}
    assert started
    for name in started:
        assert (PROJECT / name).stat().st_mode & 0o111, name
