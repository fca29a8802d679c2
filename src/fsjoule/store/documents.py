"""JSON that others may have written, parsed so that its readers need not be careful.

Text is plain (`plaintext.py`) and of bounded length, numbers are of bounded size, lists and objects of bounded length,
nesting is shallow, and keys are unique. NaN is left to the reader, who can say where it is.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Final, cast

from fsjoule.errors import ResultError
from fsjoule.host.inside import DOCUMENT_BYTES, MIB, MOST_ENTRIES
from fsjoule.host.plaintext import is_plain, plain

DAMAGED: Final = "the file is damaged or was edited: restore it from a copy, or delete its folder"
_DEEPEST: Final = 40  # fsjoule's own documents have some six levels
_LARGEST_INTEGER: Final = 2**63 - 1
# Nanoseconds of thirty years, bytes of an exabyte. Squares and products of some such numbers are still finite.
_LARGEST: Final = 1e18
_LONGEST_TEXT: Final = 1 << 16  # the end of a console has some kilobytes
_CUT: Final = " … (cut)"
_BRACKETS: Final = b"[]{}"
_BUT_BRACKETS: Final = bytes(set(range(256)) - set(_BRACKETS))
_ROUND: Final = bytes.maketrans(_BRACKETS, b"()()")


def parse(content: bytes, *, at_most: int = DOCUMENT_BYTES, most_entries: int = MOST_ENTRIES) -> tuple[Any, bytes]:
    """A JSON document, and its text for a stricter reader. Raises ValueError if it is invalid or too large."""
    if len(content) > at_most:
        raise ValueError(f"it is larger than {at_most // MIB} MiB")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_int=_integer, parse_float=_number)
        if _is_plain(text) and _is_shallow(content) and _is_small(text, most_entries):
            return document, content  # what takes much longer need not look at each value
        fit = _fit(document, 1, most_entries)
        return fit, json.dumps(fit, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError(f"it is nested deeper than {_DEEPEST} levels") from error


def check_schema(document: object, schema: str, what: str) -> None:
    """Raise ResultError, which begins with `what`, unless a parsed document names this schema."""
    named = cast("dict[str, Any]", document).get("schema") if isinstance(document, dict) else None
    if not isinstance(named, str):
        raise ResultError(f"{what} names no schema; {schema!r} was expected", hint=DAMAGED)
    if named != schema:
        raise ResultError(
            f"{what} is of schema {plain(named[:80])!r}; this version of fsjoule reads {schema!r}",
            hint="another version of fsjoule wrote it: read it with that version",
        )


def _is_plain(text: str) -> bool:
    """Whether all text of a parsed document is plain; its control characters can only be escaped ones."""
    return "\\" not in text and ((text.isascii() and "\x7f" not in text) or is_plain(text))


def _is_shallow(content: bytes) -> bool:
    """Whether the brackets alone show that nothing is nested too deep."""
    left = content.translate(_ROUND, delete=_BUT_BRACKETS)
    for _ in range(_DEEPEST):
        if not left:
            break
        left = left.replace(b"()", b"")  # one level less
    return not left


def _is_small(text: str, most: int) -> bool:
    """Whether the commas and quotes of a text without escapes alone show that no list and no text is too long."""
    return text.count(",") < most and (len(text) <= _LONGEST_TEXT or max(map(len, text.split('"'))) <= _LONGEST_TEXT)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{plain(twice[:80])!r} is there twice in one object")
    return members


def _integer(digits: str) -> int:
    if abs(value := int(digits)) > _LARGEST_INTEGER:
        raise ValueError(f"an integer of {value.bit_length()} bits is too large")
    return value


def _number(digits: str) -> float:
    if abs(value := float(digits)) > _LARGEST:
        raise ValueError(f"{value:g} is too large")
    return value


def _fit(value: Any, depth: int, most: int) -> Any:  # noqa: ANN401 - whatever JSON has
    if isinstance(value, str):
        return plain(value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + _CUT)
    if isinstance(value, dict | list):
        if depth > _DEEPEST:
            raise RecursionError
        if (count := len(cast("list[Any]", value))) > most:
            raise ValueError(f"{count} values in one list or object: more than {most}")
    if isinstance(value, dict):
        return {_fit(name, depth, most): _fit(each, depth + 1, most) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_fit(each, depth + 1, most) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float) and math.isinf(value):
        raise ValueError(f"{value:g} is too large")
    return value
