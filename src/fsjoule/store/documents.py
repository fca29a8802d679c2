"""JSON that others may have written, parsed so that nobody behind has to be careful with it.

Text is plain (`plaintext.py`) and of bounded length, numbers are of bounded size, nesting is shallow, and no key stands
twice. A NaN is left to the reader, who can say where it stands.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from fsjoule.plaintext import is_plain, plain

# What fsjoule writes is some six levels deep.
_DEEPEST: Final = 40
_LARGEST_INTEGER: Final = 2**63 - 1
# Nanoseconds of thirty years, bytes of an exabyte. Squares and products of some such numbers are still finite.
_LARGEST: Final = 1e18
# The end of a console is some kilobytes.
_LONGEST_TEXT: Final = 1 << 16
_CUT: Final = " … (cut)"
# Documents without any of these need not be looked at value by value: escapes and numbers of many digits.
_TO_LOOK_AT: Final = re.compile(r"[eE]\+?[1-9]\d|\d{19}")


def parse(content: bytes) -> tuple[Any, bytes]:
    """A JSON document, and its text for a stricter reader. Raises ValueError that says what is wrong with it."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        document = json.loads(text, object_pairs_hook=_unique)
        if len(text) <= _LONGEST_TEXT and _is_plain(text) and not _TO_LOOK_AT.search(text):
            return document, content
        fit = _fit(document, 1)
        return fit, json.dumps(fit, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError(f"it is nested deeper than {_DEEPEST} levels") from error


def _is_plain(text: str) -> bool:
    """Whether all text in a document that was parsed is plain: its control characters can only be escaped ones."""
    return "\\" not in text and ((text.isascii() and "\x7f" not in text) or is_plain(text))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{plain(twice[:80])!r} stands twice in one object")
    return found


def _fit(value: Any, depth: int) -> Any:  # noqa: ANN401 - whatever JSON has
    if depth > _DEEPEST:
        raise RecursionError
    if isinstance(value, str):
        return plain(value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + _CUT)
    if isinstance(value, dict):
        return {_fit(name, depth): _fit(each, depth + 1) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_fit(each, depth + 1) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
        raise ValueError(f"an integer of {value.bit_length()} bits is too large")
    if isinstance(value, float) and abs(value) > _LARGEST:
        raise ValueError(f"{value:g} is too large")
    return value
