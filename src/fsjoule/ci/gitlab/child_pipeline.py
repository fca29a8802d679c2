"""The child pipeline: one job per board, kernel and filesystem.

Its templates are those of the GitLab component `templates/fsjoule.yml`, with the inputs filled in as GitLab does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field

from fsjoule import kernels, lab
from fsjoule.errors import ConfigError
from fsjoule.host.toml_lines import config_text, line_of, parse_toml, validated
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.plan import planned
from fsjoule.runs.request import choose

HEAD: Final = "head"
_STAGE: Final = "board"
_HINT: Final = "docs/ci.md explains the matrix"

_Name = Annotated[str, Field(min_length=1)]

COMPONENT: Final = Path("templates/fsjoule.yml")
_BLOCK: Final = re.compile(r"\$\[\[\s*inputs\.(\w+)\s*\]\]")


class MatrixBoard(BaseModel):
    """A board of the matrix. A real board is measured only if the CI/CD variable `place_variable` names its place."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    environment: _Name
    place_variable: str | None = None


class Matrix(BaseModel):
    """The contents of `.ci/matrix.toml`. `leave_out` names jobs to skip; `repeat` counts boots."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    boards: dict[_Name, MatrixBoard]
    kernels: Annotated[list[_Name], Field(min_length=1)]
    filesystems: Annotated[list[_Name], Field(min_length=1)]
    suite: str = "quick"
    repeat: Annotated[int, Field(ge=1)] = 3
    leave_out: list[str] = []


@dataclass(frozen=True, slots=True)
class MatrixJob:
    """A job of the child pipeline. `place` is None for an emulated board."""

    board: str
    environment: str
    kernel: str
    filesystem: str
    place: str | None

    @property
    def name(self) -> str:
        return f"{self.board} {self.kernel} {self.filesystem}"


def read_matrix(file: Path) -> Matrix:
    """The matrix of a TOML file. Raises ConfigError with file and line."""
    text = config_text(file, "the matrix", hint=_HINT)
    matrix = validated(Matrix, parse_toml(text, file), text, file, hint=_HINT)
    everything = {job.name for job in _jobs(matrix, dict.fromkeys(matrix.boards))}
    for name in matrix.leave_out:
        if name not in everything:
            raise ConfigError(
                f"leave_out: no job is called {name!r}",
                file=file,
                line=line_of(text, ["leave_out"]),
                hint=f"jobs are called like {min(everything)!r}" if everything else _HINT,
            )
    return matrix


def matrix_jobs(matrix: Matrix, variables: Mapping[str, str], project: Path, *, file: Path) -> tuple[MatrixJob, ...]:
    """The jobs of all boards with a place. Raises ConfigError if a job cannot be measured, or if there is none."""
    places = {
        name: variables.get(board.place_variable) if board.place_variable else None
        for name, board in matrix.boards.items()
        if not board.place_variable or variables.get(board.place_variable)
    }
    jobs = tuple(job for job in _jobs(matrix, places) if job.name not in matrix.leave_out)
    if not jobs:
        places_missing = [board.place_variable for board in matrix.boards.values() if board.place_variable]
        hint = f"set a CI/CD variable: {', '.join(places_missing)}" if places_missing else "add a board"
        raise ConfigError("the matrix has no job", file=file, hint=hint)
    for job in jobs:
        # What the job itself would raise at its very start.
        try:
            environment = lab.read_environment(project / job.environment)
            profile = environment.profile
            # The kernel under test is unknown until its job has built it.
            kernel = kernels.kernel_choices(profile.recipe)[0] if job.kernel == HEAD else job.kernel
            asked = BenchOptions(suite=matrix.suite, fs=job.filesystem, kernel=kernel, repeat=matrix.repeat)
            choice = choose(asked, environment)
            planned(choice, profile, choice.kernels)
        except ConfigError as error:
            raise ConfigError(f"{job.name}: {error.what}", file=file, hint=error.hint) from error
    return jobs


def _jobs(matrix: Matrix, places: Mapping[str, str | None]) -> Iterator[MatrixJob]:
    for board, kernel, filesystem in product(places, matrix.kernels, matrix.filesystems):
        yield MatrixJob(board, matrix.boards[board].environment, kernel, filesystem, places[board])


def child_pipeline(project: Path, inputs: Mapping[str, str], jobs: tuple[MatrixJob, ...], matrix: Matrix) -> str:
    """The child pipeline's YAML: the component's templates, and the jobs.

    `project` is a checkout of fsjoule, `inputs` are those of the parent's component. Raises ConfigError as `component`.
    """
    found = component(project, {**inputs, "stage": _STAGE})
    document = {
        # A child pipeline has no rules of its own: the job that triggers it has them.
        "workflow": {"rules": [{"when": "always"}]},
        "stages": [_STAGE],
        **{name: each for name, each in found.items() if name.startswith(".")},
        **{job.name: _job(job, matrix, inputs["prefix"]) for job in jobs},
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _job(job: MatrixJob, matrix: Matrix, prefix: str) -> dict[str, object]:
    variables = {
        "ENVIRONMENT": job.environment,
        "KERNEL": "" if job.kernel == HEAD else job.kernel,
        "FS": job.filesystem,
        "SUITE": matrix.suite,
        "REPEAT": str(matrix.repeat),
    }
    if job.place is None:
        return {"extends": f".{prefix}:bench", "variables": variables}
    return {"extends": f".{prefix}:board", "variables": variables | {"PLACE": job.place}}


def component(project: Path, given: Mapping[str, object]) -> dict[str, Any]:
    """The component's jobs and templates by name; an input that is not given has its default.

    `project` is a checkout of fsjoule. Raises ConfigError for a file that cannot be read and for an unknown input.
    """
    file = project / COMPONENT
    try:
        header, body = yaml.safe_load_all(file.read_text(encoding="utf-8"))
        inputs: dict[str, Any] = {name: each["default"] for name, each in header["spec"]["inputs"].items()}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the component cannot be read: {error}", file=file, hint="take it from fsjoule's") from error
    for name in given:
        if name not in inputs:
            raise ConfigError(f"the component has no input {name!r}", hint=f"choose from: {', '.join(inputs)}")
    return cast("dict[str, Any]", _filled_in(body, inputs | dict(given)))


def _filled_in(part: object, inputs: Mapping[str, Any]) -> object:
    match part:
        case dict():
            return {
                _filled_in(name, inputs): _filled_in(each, inputs)
                for name, each in cast("dict[str, Any]", part).items()
            }
        case list():
            return [_filled_in(each, inputs) for each in cast("list[Any]", part)]
        case str():
            # A block that is all of the text keeps the type of its input.
            if whole := _BLOCK.fullmatch(part):
                return inputs[whole[1]]
            return _BLOCK.sub(lambda block: _text_of(inputs[block[1]]), part)
        case _:
            return part


def _text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
