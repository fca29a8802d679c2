"""A lab as a JSON document."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from fsjoule.model.places import Lab

SCHEMA: Final = "fsjoule.lab/1"


def to_document(lab: Lab) -> dict[str, Any]:
    """The fields of `model.places.Lab`, and how each window was used, and its efficiency."""
    document: dict[str, Any] = {"schema": SCHEMA, **dataclasses.asdict(lab)}
    for place, shown in zip(lab.places, document["places"], strict=True):
        for usage, window in zip(place.usage, shown["usage"], strict=True):
            window |= {"used": usage.used, "efficiency": usage.efficiency}
    return document
