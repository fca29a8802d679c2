"""The project's file, `fsjoule.toml`: what a user's own project has of suites and filesystems.

It is the nearest one in the current folder or a parent, up to the folder of the git repository. `FSJOULE_PROJECT` names
another one. Who reads a table of it checks the table; here is only what all of them share.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from fsjoule.errors import ConfigError
from fsjoule.host.paths import absolute
from fsjoule.host.toml_lines import config_text, line_of, parse_toml, wrong_value

if TYPE_CHECKING:
    from pydantic import ValidationError

NAME: Final = "fsjoule.toml"
_VARIABLE: Final = "FSJOULE_PROJECT"
_TABLES: Final = ("suites", "filesystems")


@dataclass(frozen=True, slots=True)
class ProjectTable:
    """One table of the project's file: `values` as TOML has them, `text` of the whole file for lines in errors."""

    file: Path
    text: str
    name: str
    values: dict[str, Any]

    def error(self, what: str, *path: str, hint: str | None = None) -> ConfigError:
        """An error at the line of the key at `path` within the table."""
        return ConfigError(what, file=self.file, line=line_of(self.text, [self.name, *path]), hint=hint)

    def wrong_value(self, error: ValidationError, *path: str, hint: str) -> ConfigError:
        """The error of a value that pydantic refuses; `path` is that of the validated table."""
        return wrong_value(error, self.text, self.file, hint=hint, within=[self.name, *path])


def project_table(name: str) -> ProjectTable | None:
    """The table of this name; None without a project's file, or if the file lacks the table.

    Raises ConfigError for a file that cannot be read, with file and line for one that is no TOML or has unknown tables.
    """
    file = project_file()
    if file is None:
        return None
    text = config_text(file, "the project's file", hint=_hint())
    document = parse_toml(text, file)
    for key, value in document.items():
        known = key in _TABLES
        if not known or not isinstance(value, dict):
            what = f"[{key}] is no table" if known else f"unknown table or key {key!r}"
            raise ConfigError(what, file=file, line=line_of(text, [key]), hint=_hint())
    values = cast("dict[str, Any] | None", document.get(name))
    return None if values is None else ProjectTable(file, text, name, values)


def project_file() -> Path | None:
    """The project's file, if there is one. Raises ConfigError for a variable that names none."""
    if named := os.environ.get(_VARIABLE):
        file = absolute(_VARIABLE, named, "file")
        if not file.is_file():
            raise ConfigError(f"{_VARIABLE}={named!r}: there is no such file", hint=f"name one, or unset {_VARIABLE}")
        return file
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the current folder was removed
        return None
    for folder in (here, *here.parents):
        # os.path: what may not be looked at is absent.
        if os.path.isfile(folder / NAME):  # noqa: PTH113
            return folder / NAME
        if os.path.lexists(folder / ".git"):
            return None
    return None


def _hint() -> str:
    return f"its tables are {', '.join(f'[{each}]' for each in _TABLES)}"
