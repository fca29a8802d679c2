"""The exporter's file, as labgrid's exporter reads it: a template of YAML."""

from __future__ import annotations

import io
import os
import socket
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, cast

import jinja2
import yaml
from labgrid.exceptions import NoConfigFoundError
from labgrid.remote.config import ResourceConfig

from fsjoule.errors import ConfigError

_UNREADABLE: Final = (NoConfigFoundError, OSError, UnicodeDecodeError)


def exporter_groups(file: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Resources by group and name, with their arguments. Raises ConfigError for what the exporter would not take."""
    values = {"env": os.environ, "isolated": False, "hostname": socket.gethostname(), "name": socket.gethostname()}
    config: Any = ResourceConfig  # attrs without types
    try:
        with redirect_stdout(io.StringIO()):  # it prints the file
            document: object = config(str(file.absolute()), values).data
    except _UNREADABLE as error:
        raise ConfigError(f"cannot be read: {error}", file=file, hint="give the exporter's file") from error
    except jinja2.TemplateError as error:
        raise ConfigError(f"not a template: {error}", file=file, hint="labgrid/virtual has an example") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", file=file, hint="indent with spaces, close quotes") from error
    groups = _mapping(document, "the file", file)
    return {name: _resources(name, group, file) for name, group in groups.items()}


def _resources(group: str, written: object, file: Path) -> dict[str, dict[str, Any]]:
    resources = {name: value for name, value in _mapping(written, group, file).items() if name != "location"}
    return {name: _mapping(value, f"{group}: {name}", file) for name, value in resources.items() if value is not None}


def _mapping(value: object, what: str, file: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        hint = "a file maps groups to resources, a resource its arguments to values; labgrid/boards has examples"
        raise ConfigError(f"{what} must be a mapping (key: value)", file=file, hint=hint)
    return {str(key): each for key, each in cast("dict[object, Any]", value).items()}
