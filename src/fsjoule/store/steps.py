"""Labgrid's steps for a measurement as an attachment: a JSON list, in the order of their begin."""

from __future__ import annotations

from typing import Final

from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import ResultError
from fsjoule.host.json_text import json_text
from fsjoule.model import LabStep
from fsjoule.store.checks import check_steps
from fsjoule.store.documents import parse
from fsjoule.store.schemas import reader_of

STEPS_FILE: Final = "steps.json"

_STEPS: Final = TypeAdapter(tuple[LabStep, ...])
_READER: Final = reader_of(_STEPS)


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
