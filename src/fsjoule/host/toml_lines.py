"""Files of the user's: texts, and TOML whose errors are reported with file, line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fsjoule.errors import ConfigError
from fsjoule.host.inside import MIB

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

T = TypeVar("T")

_MISSPELT = ("unexpected_keyword_argument", "extra_forbidden")
_HEADER = re.compile(r"^\s*\[{1,2}\s*([^\[\]]+?)\s*\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")


def config_text(file: Path, what: str, *, hint: str | None = None, most_bytes: int = MIB) -> str:
    """The text of a file of the user's; `what` names it in messages. Raises ConfigError."""
    try:
        with file.open("rb") as opened:
            content = opened.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise ConfigError(f"{what} is larger than {most_bytes / MIB:g} MiB", file=file, hint=hint)
        return content.decode().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} cannot be read: {error}", file=file, hint=hint) from error


def parse_toml(text: str, file: Path) -> dict[str, Any]:
    """The document of a TOML text; `file` is for error messages. Raises ConfigError with file and line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"at line (\d+)", str(error))
        line = int(where[1]) if where else text.count("\n") + 1
        hint = "TOML: quote texts, close quotes and brackets"
        raise ConfigError(f"not valid TOML: {error}", file=file, line=line, hint=hint) from error


def only_table(text: str, file: Path, name: str, *, hint: str) -> Any:  # noqa: ANN401 - as TOML has it
    """The one table of a TOML text. Raises ConfigError with file and line, also for anything beside it."""
    document = parse_toml(text, file)
    for key in document:
        if key != name:
            raise ConfigError(f"unknown table or key {key!r}", file=file, line=line_of(text, [key]), hint=hint)
    if not isinstance(document.get(name), dict):
        raise ConfigError(f"no table [{name}]", file=file, line=1, hint=hint)
    return document[name]


def validated(kind: type[T], value: object, text: str, file: Path, *, hint: str, within: Sequence[str] = ()) -> T:
    """A value of a TOML text as pydantic reads it; `within` is the path of its table. Raises ConfigError."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - it takes longer to import than most files take

    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise wrong_value(error, text, file, hint=hint, within=within) from error


def path_of(error: ValidationError) -> list[str]:
    return [str(part) for part in _first(error)["loc"] if part != "[key]"]


def _first(error: ValidationError) -> ErrorDetails:
    """The first error; a misspelt key rather than the missing one that it was to be."""
    found = error.errors(include_url=False)
    return next((one for one in found if one["type"] in _MISSPELT), found[0])


def wrong_value(error: ValidationError, text: str, file: Path, *, hint: str, within: Sequence[str] = ()) -> ConfigError:
    """The first error in a document, with file, line and value; `within` is the validated table."""
    first, path = _first(error), path_of(error)
    simple = isinstance(first["input"], str | int | float | list)
    given = f" (given: {first['input']!r})" if simple else ""
    key = f"{'.'.join(path)}: " if path else ""
    line = line_of(text, [*within, *path]) if within or path else None  # of the document as a whole
    what = f"{key}{first['msg'].removeprefix('Value error, ')}{given}"
    return ConfigError(what, file=file, line=line, hint=hint)


def line_of(text: str, path: Sequence[str]) -> int:
    """The line (from 1) of the key at `path`, or of the nearest table around a missing key.

    Understands `[tables]`, `[[arrays of tables]]` and `key = value` lines, dotted and quoted keys. Tables of an array
    have their number, from 0, in the path. An unknown key is at line 1.
    """
    best_line, best_depth = 1, 0
    for number, found in _keys(text):
        depth = min(len(found), len(path))  # [a.b] has a, too
        if best_depth < depth and list(path[:depth]) == found[:depth]:
            best_line, best_depth = number, depth
    return best_line


def _keys(text: str) -> list[tuple[int, list[str]]]:
    table: list[str] = []
    keys: list[tuple[int, list[str]]] = []
    last: dict[tuple[str, ...], int] = {}  # of each array of tables, by the path without numbers
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            plain = tuple(_split(header[1]))
            if line.lstrip().startswith("[["):
                last[plain] = last.get(plain, -1) + 1
            table = []
            for depth, part in enumerate(plain, start=1):
                table = [*table, part]
                if plain[:depth] in last:
                    keys.append((number, table))
                    table = [*table, str(last[plain[:depth]])]
            keys.append((number, table))
        elif key := _KEY.match(line):
            keys.append((number, table + _split(key[1])))
    return keys


def _split(dotted: str) -> list[str]:
    """`kernels."6.1"` -> ["kernels", "6.1"], by TOML's rules."""
    try:
        level: Any = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return []
    parts: list[str] = []
    while isinstance(level, dict):
        key, level = next(iter(cast("dict[str, Any]", level).items()))
        parts.append(key)
    return parts
