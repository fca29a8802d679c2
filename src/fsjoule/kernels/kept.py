"""Small results of builds, kept in the cache by the key of everything that determines them."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from fsjoule.host.cache.locks import discard
from fsjoule.host.json_text import json_text
from fsjoule.kernels.source_tree import kernels_cache

_T = TypeVar("_T")


class KeptBuild(StrEnum):
    """The kind of a result; also its folder's name."""

    CONFIGURATION = "configured"
    FAILURE = "failed"


def kept(what: KeptBuild, key: str, adapter: TypeAdapter[_T]) -> _T | None:
    """A result that was kept; None if there is none, or it cannot be read."""
    try:
        return adapter.validate_json(_file(what, key).read_bytes())
    except (OSError, ValidationError):
        return None


def keep(what: KeptBuild, key: str, adapter: TypeAdapter[_T], result: _T) -> None:
    """Keep a result: all of it or, if this process is killed, nothing."""
    file = _file(what, key)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    unfinished.write_bytes(json_text(adapter, result))
    unfinished.rename(file)


def forget_kept() -> None:
    """Remove all results."""
    for what in KeptBuild:
        discard(kernels_cache() / what)


def _file(what: KeptBuild, key: str) -> Path:
    return kernels_cache() / what / f"{key}.json"
