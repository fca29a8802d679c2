"""Options of commands: a dataclass of them is one parameter of a command's function, and several share some."""

from __future__ import annotations

import inspect
import secrets
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

from fsjoule.cli.common import (
    All,
    Filesystems,
    Json,
    PairedBoards,
    Select,
    Wide,
    declared,
    joined,
    output_file,
    output_folder,
)
from fsjoule.cli.outputs import Format
from fsjoule.runs.options import DEFAULT_RESULTS, DEFAULT_SUITE, BenchOptions, Option, PlaceOptions, option, rows

if TYPE_CHECKING:
    from fsjoule.lab import EnvironmentFile
    from fsjoule.runs.request import RunRequest


def with_options(run: Callable[..., None]) -> Callable[..., None]:
    """A command for typer whose function takes a dataclass of options as its last parameter.

    A field is declared by `option`, or by the `Annotated` type of a parameter that functions have, too.
    """
    *before, last = inspect.signature(run, eval_str=True).parameters.values()
    of = last.annotation
    hints, defaults = get_type_hints(of, include_extras=True), {each.name: each.default for each in fields(of)}
    parameters = [*before, *(_parameter(name, row, hints[name], defaults[name]) for name, row in rows(of))]

    @wraps(run)
    def command(**values: Any) -> None:  # noqa: ANN401 - of any type
        own = {each.name: values.pop(each.name) for each in before}
        run(**own, **{last.name: of(**values)})

    described: Any = command
    described.__signature__ = inspect.Signature([each.replace(kind=each.KEYWORD_ONLY) for each in parameters])
    described.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _parameter(name: str, row: Option, hint: Any, default: object) -> inspect.Parameter:  # noqa: ANN401 - a type
    annotation = hint if get_origin(hint) is Annotated else Annotated[hint, declared(row)]
    value = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)


def argument(metavar: str, text: str, default: Any = None) -> Any:  # noqa: ANN401 - as `option`
    """A dataclass's field that is a word without an option's name."""
    return option(metavar, text, default, argument=True)


def file_option(text: str, *, metavar: str = "FILE", name: str = "") -> Any:  # noqa: ANN401 - as `option`
    """An option that names a file to be written; before any work it is checked that it can be."""
    return option(metavar, text, name=name, callback=output_file)


def folder_option(text: str, default: Path | None = None, *, name: str = "") -> Any:  # noqa: ANN401 - as `option`
    """As `file_option`, for a folder."""
    return option("DIR", text, default, name=name, callback=output_folder)


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """How a command shows a verdict."""

    everything: All = False
    wide: Wide = False
    form: Format = None
    json_output: Json = False


@dataclass(frozen=True, kw_only=True)
class FreshOptions(PlaceOptions):
    """What only a command takes that measures now, and reads nothing."""

    suite: str | None = option("NAME", f"Suite (measured: {DEFAULT_SUITE}).")
    seed: int | None = option("", "Seed of the boot and all random choices (else a new one).")


@dataclass(frozen=True, kw_only=True)
class InsightOptions(FreshOptions):
    """What a command takes that looks into measurements: of a run, or, on a board, of a fresh one."""

    lg_env: Path | None = option("FILE", "Measure now, on this board (exact in guest time).")
    fs: Filesystems = None
    select: Select = None
    results: Path = option("DIR", "Where the run folder goes.", Path(DEFAULT_RESULTS))
    everything: All = False
    wide: Wide = False
    json_output: Json = False


def fresh_choice(
    asked: InsightOptions,
    pair: tuple[str, str] | None = None,
    **more: Any,  # noqa: ANN401 - of any type
) -> tuple[RunRequest, EnvironmentFile, tuple[str, ...]]:
    """The run that is measured now, its board, and the command that measures it again.

    `more` are further options of `fsjoule bench`.
    """
    from fsjoule.lab import read_environment
    from fsjoule.runs.request import choose

    assert asked.lg_env is not None
    environment = read_environment(asked.lg_env, asked.place_request())
    seed = secrets.randbits(32) if asked.seed is None else asked.seed
    options = BenchOptions(suite=asked.suite, fs=joined(asked.fs), results=asked.results, seed=seed, **more)
    again = ("fsjoule", *sys.argv[1:], *([] if asked.seed is not None else ["--seed", str(seed)]))
    return choose(options, environment, pair=pair, select=asked.select), environment, again


@dataclass(frozen=True, kw_only=True)
class BoardsOptions(PlaceOptions):
    """Which places are taken, and how many boards boot at once."""

    boards: PairedBoards = None
