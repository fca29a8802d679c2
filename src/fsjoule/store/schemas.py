"""The models as JSON: strict reading, writing, and the JSON Schemas generated from them.

Strict means: no number from a string, no unknown field, no NaN or infinity, text that is plain, and values that can be
(`documents.py`, `checks.py`). All errors are reported, with their paths, but of each list and mapping only the first:
a list of zeros would have more of them than fit into memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import SchemaValidator

from fsjoule.errors import ResultError
from fsjoule.host.inside import DOCUMENT_BYTES, MOST_ENTRIES
from fsjoule.host.plaintext import plain_line
from fsjoule.model import MEASUREMENT_SCHEMA, RUN_SCHEMA, Measurement, Run
from fsjoule.store.checks import check_measurement, check_run
from fsjoule.store.documents import parse
from fsjoule.store.upgrade import Document, upgraded_measurement, upgraded_run

T = TypeVar("T")

# "constants" writes a NaN as NaN, which the check of what was written then refuses; "null" would turn it into "absent".
STRICT: Final = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")
_OF_MANY: Final = ("list", "tuple", "dict")


def reader_of(adapter: TypeAdapter[Any]) -> SchemaValidator:
    """What reads JSON as the adapter does, but reports the first error of each list and mapping only."""
    return SchemaValidator(_failing_fast(adapter.core_schema))


def _failing_fast(schema: Any) -> Any:  # noqa: ANN401 - pydantic's own data
    if isinstance(schema, list):
        return [_failing_fast(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _failing_fast(each) for name, each in cast("dict[str, Any]", schema).items()}
    return parts | {"fail_fast": True} if parts.get("type") in _OF_MANY else parts


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of document: its types, what they do not say of its values, and how long it can be.

    `check` raises ValueError.
    """

    adapter: TypeAdapter[T]
    check: Callable[[T], None]
    at_most: int = DOCUMENT_BYTES
    most_entries: int = MOST_ENTRIES
    reader: SchemaValidator = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reader", reader_of(self.adapter))

    def parse(self, content: bytes) -> tuple[Any, bytes]:
        """The document as it is, and its text for `read`. Raises ValueError."""
        return parse(content, at_most=self.at_most, most_entries=self.most_entries)

    def read(self, content: bytes) -> T:
        """Raises ValueError with all errors of types, or the first one of values."""
        try:
            value: T = self.reader.validate_json(content)
        except ValidationError as error:
            raise ValueError(_listed(error)) from error
        try:
            self.check(value)
        except ValueError as error:
            raise ValueError(f"\n  {error}") from error
        return value


# Nested dataclasses take over the configuration of the outermost one.
RUN: Final = Kind(TypeAdapter(with_config(STRICT)(Run)), check_run)
MEASUREMENT: Final = Kind(TypeAdapter(with_config(STRICT)(Measurement)), check_measurement)

# Older documents that are turned into today's before they are read: schema -> (older schemas, how).
_OLDER: Final[dict[str, tuple[tuple[str, ...], Callable[[Document], Document]]]] = {
    RUN_SCHEMA: (tuple(f"fsjoule.run/{n}" for n in (1, 2, 3, 4)), upgraded_run),
    MEASUREMENT_SCHEMA: (tuple(f"fsjoule.measurement/{n}" for n in (1, 2, 3)), upgraded_measurement),
}

_MOST_LISTED: Final = 100
_LONGEST_PLACE: Final = 200
_NEWER: Final = "it was written by another version of fsjoule: read it with that one"
_DAMAGED: Final = "the file is damaged or was edited: restore it from a copy, or delete its folder"


def encode(kind: Kind[T], value: T, name: str) -> bytes:
    """`value` as indented JSON that `decode` is known to read back.

    Raises ResultError, with the path of each field, for a value that is not of its stated type (a NaN, for example).
    """
    content = kind.adapter.dump_json(value, indent=2) + b"\n"
    try:
        kind.read(kind.parse(content)[1])
    except ValueError as error:
        raise ResultError(f"{name} cannot be stored:{error}", hint="this is a bug of fsjoule") from error
    return content


def decode(kind: Kind[T], content: bytes, schema: str, path: Path) -> T:
    """Read what `encode` wrote, now or in an older schema.

    Raises ResultError with the path and all errors, field by field.
    """
    try:
        return kind.read(_in_schema(kind, content, schema, path))
    except ValueError as error:
        raise ResultError(f"{plain_line(str(path))} does not follow {schema}:{error}", hint=_DAMAGED) from error


def _in_schema(kind: Kind[Any], content: bytes, schema: str, path: Path) -> bytes:
    """The document in that schema. Raises ResultError if it is in one that cannot be read."""
    shown = plain_line(str(path))
    try:
        data, content = kind.parse(content)
    except ValueError as error:
        raise ResultError(f"{shown} is not JSON of ours: {error}", hint=_DAMAGED) from error
    document = cast("Document", data) if isinstance(data, dict) else {}
    found = document.get("schema")
    if not isinstance(found, str):
        raise ResultError(f"{shown} names no schema; {schema!r} was expected", hint=_DAMAGED)
    if found == schema:
        return content
    older, upgrade = _OLDER.get(schema, ((), dict))
    if found not in older:
        raise ResultError(f"{shown} is of schema {found[:80]!r}; this version of fsjoule reads {schema!r}", hint=_NEWER)
    try:
        return json.dumps(upgrade(document)).encode()
    # A document that is none of its schema may fail in any way that parsed JSON has.
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ResultError(f"{shown} does not follow {found}: {error!r}", hint=_DAMAGED) from error


def _listed(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"\n  {'.'.join(map(str, item['loc']))[:_LONGEST_PLACE] or '(whole)'}: {item['msg']}" for item in details]
    more = f"\n  and {len(lines) - _MOST_LISTED} more" if len(lines) > _MOST_LISTED else ""
    return "".join(lines[:_MOST_LISTED]) + more


def json_schemas() -> dict[str, str]:
    """The JSON Schemas as text, by file name."""
    return {
        "run.json": _json_schema(RUN, RUN_SCHEMA, "One run: what was asked for, on what, and where the time went"),
        "measurement.json": _json_schema(
            MEASUREMENT, MEASUREMENT_SCHEMA, "One measurement: a fio job or a timed operation, with its energy"
        ),
    }


def _json_schema(kind: Kind[Any], name: str, title: str) -> str:
    # The writer writes every field, so in the schema of what is written every field is required.
    schema = kind.adapter.json_schema(mode="serialization")
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
