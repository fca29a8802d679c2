"""The models as JSON: strict reading, writing, and the generated JSON Schemas.

Strict means: no number from a string, no unknown field, no NaN or infinity, plain text, and possible values
(`documents.py`, `checks.py`). All errors are reported with their paths, but only the first of each list and mapping,
because the errors of a long list would not fit into memory.
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
from fsjoule.host.json_text import json_text
from fsjoule.host.plaintext import plain_line
from fsjoule.model import MEASUREMENT_SCHEMA, RUN_SCHEMA, LabStep, Measurement, Run
from fsjoule.store.checks import check_measurement, check_run, check_steps
from fsjoule.store.documents import DAMAGED, check_schema, parse

T = TypeVar("T")

# "constants" writes NaN as NaN, which the check after writing refuses; "null" would turn it into "absent".
STRICT: Final = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")
_OF_MANY: Final = ("list", "tuple", "dict")


def _reader_of(adapter: TypeAdapter[Any]) -> SchemaValidator:
    """A reader of JSON like the adapter's that reports only the first error of each list and mapping."""
    return SchemaValidator(_failing_fast(adapter.core_schema))


def _failing_fast(schema: Any) -> Any:  # noqa: ANN401 - pydantic's own data
    if isinstance(schema, list):
        return [_failing_fast(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _failing_fast(each) for name, each in cast("dict[str, Any]", schema).items()}
    return parts | {"fail_fast": True} if parts.get("type") in _OF_MANY else parts


@dataclass(frozen=True, slots=True)
class DocumentKind(Generic[T]):
    """A kind of document: its types, a check of its values, and its limits. `check` raises ValueError."""

    adapter: TypeAdapter[T]
    check: Callable[[T], None]
    at_most: int = DOCUMENT_BYTES
    most_entries: int = MOST_ENTRIES
    reader: SchemaValidator = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reader", _reader_of(self.adapter))

    def parse(self, content: bytes) -> tuple[Any, bytes]:
        """The parsed document, and its text for `read`. Raises ValueError."""
        return parse(content, at_most=self.at_most, most_entries=self.most_entries)

    def read(self, content: bytes) -> T:
        """The document's value. Raises ValueError with all errors of types, or the first error of values."""
        try:
            value: T = self.reader.validate_json(content)
        except ValidationError as error:
            raise ValueError(_listed(error)) from error
        try:
            self.check(value)
        except ValueError as error:
            raise ValueError(f"\n  {error}") from error
        return value


# Nested dataclasses inherit the configuration of the outermost one.
RUN: Final = DocumentKind(TypeAdapter(with_config(STRICT)(Run)), check_run)
MEASUREMENT: Final = DocumentKind(TypeAdapter(with_config(STRICT)(Measurement)), check_measurement)

_MOST_LISTED: Final = 150
_LONGEST_PLACE: Final = 200


def encode(kind: DocumentKind[T], value: T, name: str) -> bytes:
    """`value` as indented JSON, checked to be readable. Raises ResultError with the path of each wrong field."""
    content = json_text(kind.adapter, value, indent=2)
    try:
        kind.read(kind.parse(content)[1])
    except ValueError as error:
        raise ResultError(f"{name} cannot be stored:{error}", hint="this is a bug of fsjoule") from error
    return content


def decode(kind: DocumentKind[T], content: bytes, schema: str, path: Path) -> T:
    """Read the output of `encode`. Raises ResultError with the path and all errors by field, or for another schema."""
    name = plain_line(str(path))
    try:
        document, content = kind.parse(content)
    except ValueError as error:
        raise ResultError(f"{name} is not JSON of ours: {error}", hint=DAMAGED) from error
    check_schema(document, schema, name)
    try:
        return kind.read(content)
    except ValueError as error:
        raise ResultError(f"{name} does not follow {schema}:{error}", hint=DAMAGED) from error


def _listed(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"\n  {'.'.join(map(str, item['loc']))[:_LONGEST_PLACE] or '(whole)'}: {item['msg']}" for item in details]
    more = f"\n  and {len(lines) - _MOST_LISTED} more" if len(lines) > _MOST_LISTED else ""
    return "".join(lines[:_MOST_LISTED]) + more


def json_schemas() -> dict[str, str]:
    return {
        "run.json": _json_schema(RUN, RUN_SCHEMA, "One run: what was asked for, on what, and where the time went"),
        "measurement.json": _json_schema(
            MEASUREMENT, MEASUREMENT_SCHEMA, "One measurement: a fio job or a timed operation, with its energy"
        ),
    }


def _json_schema(kind: DocumentKind[Any], name: str, title: str) -> str:
    # The writer writes every field, so the schema requires every field.
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


# Labgrid's steps for a measurement, in the order of their begin: an attachment.
STEPS_FILE: Final = "steps.json"
_STEPS: Final = TypeAdapter(tuple[LabStep, ...])
_READER: Final = _reader_of(_STEPS)


def encode_steps(steps: tuple[LabStep, ...]) -> bytes:
    return json_text(_STEPS, steps, indent=1)


def decode_steps(content: bytes) -> tuple[LabStep, ...]:
    """Read the output of `encode_steps`. Raises ResultError if it is damaged."""
    try:
        steps: tuple[LabStep, ...] = _READER.validate_json(parse(content)[1], strict=True)
        check_steps(steps)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"])) or "(whole)"
        raise ResultError(f"the record of labgrid's steps is damaged: {where}: {problem['msg']}") from error
    except ValueError as error:
        raise ResultError(f"the record of labgrid's steps is damaged: {error}") from error
    return steps
