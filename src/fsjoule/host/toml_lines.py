"""Where in a TOML text a value stands, for error messages; the parser of the standard library does not say."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any, cast

_HEADER = re.compile(r"^\s*\[{1,2}\s*([^\[\]]+?)\s*\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")


def line_of(text: str, path: Sequence[str]) -> int:
    """The line (from 1) of the key at `path`, or of the nearest table around it if the key itself is missing.

    Understands `[tables]` and `key = value` lines, dotted and quoted keys; what it does not find stands at line 1.
    """
    best_line, best_depth = 1, 0
    for number, found in _keys(text):
        depth = len(found)
        if best_depth < depth <= len(path) and list(path[:depth]) == found:
            best_line, best_depth = number, depth
    return best_line


def _keys(text: str) -> list[tuple[int, list[str]]]:
    table: list[str] = []
    keys: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _split(header[1])
            keys.append((number, table))
        elif key := _KEY.match(line):
            keys.append((number, table + _split(key[1])))
    return keys


def _split(dotted: str) -> list[str]:
    """`kernels."6.1"` -> ["kernels", "6.1"], by the rules of TOML itself."""
    try:
        level: Any = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return []
    parts: list[str] = []
    while isinstance(level, dict):
        key, level = next(iter(cast("dict[str, Any]", level).items()))
        parts.append(key)
    return parts
