"""The GitLab component `templates/fsjoule.yml`, with its inputs filled in as GitLab fills them in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml

from fsjoule.errors import ConfigError

FILE: Final = Path("templates/fsjoule.yml")
_BLOCK: Final = re.compile(r"\$\[\[\s*inputs\.(\w+)\s*\]\]")


def component(project: Path, given: Mapping[str, object]) -> dict[str, Any]:
    """The component's jobs and templates by name; an input that is not given has its default.

    `project` is a checkout of fsjoule. Raises ConfigError for a file that cannot be read and for an unknown input.
    """
    file = project / FILE
    try:
        header, body = yaml.safe_load_all(file.read_text(encoding="utf-8"))
        inputs: dict[str, Any] = {name: each["default"] for name, each in header["spec"]["inputs"].items()}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the component cannot be read: {error}", file=file, hint="take it from fsjoule's") from error
    for name in given:
        if name not in inputs:
            raise ConfigError(f"the component has no input {name!r}", hint=f"choose from: {', '.join(inputs)}")
    return cast("dict[str, Any]", _filled(body, inputs | dict(given)))


def _filled(part: object, inputs: Mapping[str, Any]) -> object:
    match part:
        case dict():
            return {_filled(name, inputs): _filled(each, inputs) for name, each in cast("dict[str, Any]", part).items()}
        case list():
            return [_filled(each, inputs) for each in cast("list[Any]", part)]
        case str():
            # A block that is all of the text keeps the type of its input.
            if whole := _BLOCK.fullmatch(part):
                return inputs[whole[1]]
            return _BLOCK.sub(lambda block: _text(inputs[block[1]]), part)
        case _:
            return part


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
