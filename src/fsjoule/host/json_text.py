"""JSON of pydantic's kinds of values, whole also when a signal comes."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from fsjoule.host.interrupts import shielded


def json_text(adapter: TypeAdapter[Any], value: object, *, indent: int | None = None) -> bytes:
    """The value's JSON, with a newline at its end.

    pydantic turns whatever is raised meanwhile into an error of its own, Interrupted as well: a signal waits.
    """
    with shielded():
        return adapter.dump_json(value, indent=indent) + b"\n"
