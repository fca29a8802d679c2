"""Options of commands: a dataclass of them is one parameter of a command's function, and several share some."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

from fsjoule.cli.common import All, Json, PairedBoards, Wide, declared, output_file, output_folder
from fsjoule.cli.outputs import Format
from fsjoule.runs.options import Option, PlaceOptions, option, rows


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
class BoardsOptions(PlaceOptions):
    """Which places are taken, and how many boards boot at once."""

    boards: PairedBoards = None
