"""The models as JSON: strict reading, writing, and the JSON Schemas generated from them.

Strict means: no number from a string, no unknown field, no NaN or infinity. All errors are reported, with their paths.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from fsjoule.errors import ResultError
from fsjoule.model import MEASUREMENT_SCHEMA, RUN_SCHEMA, Measurement, Run
from fsjoule.store.upgrade import Document, upgraded_measurement, upgraded_run

T = TypeVar("T")

# "constants" writes a NaN as NaN, which the check of what was written then refuses; "null" would turn it into "absent".
STRICT: Final = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")

# Nested dataclasses take over the configuration of the outermost one.
RUN: Final = TypeAdapter(with_config(STRICT)(Run))
MEASUREMENT: Final = TypeAdapter(with_config(STRICT)(Measurement))

# Older documents that are turned into today's before they are read: schema -> (older schemas, how).
_OLDER: Final[dict[str, tuple[tuple[str, ...], Callable[[Document], Document]]]] = {
    RUN_SCHEMA: (tuple(f"fsjoule.run/{n}" for n in (1, 2, 3)), upgraded_run),
    MEASUREMENT_SCHEMA: (tuple(f"fsjoule.measurement/{n}" for n in (1, 2, 3)), upgraded_measurement),
}

_NEWER: Final = "it was written by another version of fsjoule: read it with that one"
_DAMAGED: Final = "the file is damaged or was edited: restore it from a copy, or delete its folder"


def encode(adapter: TypeAdapter[T], value: T, name: str) -> bytes:
    """`value` as indented JSON that `decode` is known to read back.

    Raises ResultError, with the path of each field, for a value that is not of its stated type (a NaN, for example).
    """
    content = adapter.dump_json(value, indent=2) + b"\n"
    try:
        adapter.validate_json(content)
    except ValidationError as error:
        raise ResultError(f"{name} cannot be stored:{_listed(error)}", hint="this is a bug of fsjoule") from error
    return content


def decode(adapter: TypeAdapter[T], content: bytes, schema: str, path: Path) -> T:
    """Read what `encode` wrote, now or in an older schema.

    Raises ResultError with the path and all errors, field by field.
    """
    try:
        return adapter.validate_json(_in_schema(content, schema, path))
    except ValidationError as error:
        raise ResultError(f"{path} does not follow {schema}:{_listed(error)}", hint=_DAMAGED) from error


def _in_schema(content: bytes, schema: str, path: Path) -> bytes:
    """The document in that schema. Raises ResultError if it is in one that cannot be read."""
    try:
        data: object = json.loads(content)
    except ValueError as error:
        raise ResultError(f"{path} is not JSON: {error}", hint=_DAMAGED) from error
    document = cast("Document", data) if isinstance(data, dict) else {}
    found = document.get("schema")
    if not isinstance(found, str):
        raise ResultError(f"{path} names no schema; {schema!r} was expected", hint=_DAMAGED)
    if found == schema:
        return content
    older, upgrade = _OLDER.get(schema, ((), dict))
    if found not in older:
        raise ResultError(f"{path} is of schema {found!r}; this version of fsjoule reads {schema!r}", hint=_NEWER)
    try:
        return json.dumps(upgrade(document)).encode()
    except (AttributeError, KeyError, TypeError) as error:
        raise ResultError(f"{path} does not follow {found}: {error!r}", hint=_DAMAGED) from error


def _listed(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "".join(f"\n  {'.'.join(map(str, item['loc'])) or '(whole)'}: {item['msg']}" for item in details)


def json_schemas() -> dict[str, str]:
    """The JSON Schemas as text, by file name."""
    return {
        "run.json": _json_schema(RUN, RUN_SCHEMA, "One run: what was asked for, on what, and where the time went"),
        "measurement.json": _json_schema(
            MEASUREMENT, MEASUREMENT_SCHEMA, "One measurement: a fio job or a timed operation, with its energy"
        ),
    }


def _json_schema(adapter: TypeAdapter[Any], name: str, title: str) -> str:
    # The writer writes every field, so in the schema of what is written every field is required.
    schema = adapter.json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:{name.replace('/', ':')}"}
    return json.dumps({**head, **schema, "title": title}, indent=2) + "\n"


def write_json_schemas(folder: Path) -> tuple[Path, ...]:
    """Write the schemas into `folder` (the repository keeps them in docs/schemas); returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, text in json_schemas().items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return tuple(paths)
