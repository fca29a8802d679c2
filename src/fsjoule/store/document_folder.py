"""Folders of JSON documents beside the runs that are never changed, only added to. Copies from other machines merge.

A document's name ends with a digest of its content: two writers never mean the same file, and a copy can be checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fsjoule.errors import ResultError, StorageError
from fsjoule.host.files import write_file
from fsjoule.host.inside import DOCUMENT_BYTES, list_inside, read_inside, shown
from fsjoule.store.documents import check_schema, parse

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_ENDING: Final = ".json"
_DIGITS: Final = 16
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,180}}-([0-9a-f]{{{_DIGITS}}}){re.escape(_ENDING)}")


def add_document(folder: Path, made_utc: str, words: str, document: object) -> Path:
    """Write a dataclass into the folder, which is made if necessary; returns the file. Raises StorageError."""
    assert is_dataclass(document)
    assert not isinstance(document, type)
    content = (json.dumps(asdict(document), indent=2, allow_nan=False) + "\n").encode()
    stamp = made_utc.replace("-", "").replace(":", "")
    path = folder / f"{stamp}-{words}-{_digest(content)}{_ENDING}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}") from error
    return path


def read_documents(folder: Path, kind: type[T], schema: str, check: Callable[[T], None]) -> tuple[list[T], list[str]]:
    """All documents of a folder by their names, and the faults of unreadable ones; empty without a folder.

    `check` raises ValueError or ResultError for values that no such document has.
    """
    documents: list[T] = []
    try:
        listed = list_inside(folder)
    except ResultError as error:
        return [], [error.what]
    faults = [f"{shown(folder, name)}: {why}" for name, why in listed.refused.items() if name.endswith(_ENDING)]
    for name in listed.files:
        # Files cut short while being written have another ending.
        if not name.endswith(_ENDING) or name.startswith("."):
            continue
        try:
            content = read_inside(folder, name, at_most=DOCUMENT_BYTES)
            if content is not None:
                document, content = parse(content)
                check_schema(document, schema, "it")
                value: T = _adapter(kind).validate_json(content, strict=True)
                check(value)
                documents.append(value)
        except (ValueError, ResultError) as error:
            faults.append(f"{shown(folder, name)}: {error}")
    return documents, faults


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Made when there is something to read: most folders have nothing, and pydantic takes its time."""
    from pydantic import ConfigDict, TypeAdapter, with_config  # noqa: PLC0415

    return TypeAdapter(with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(kind))


def is_document_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_whole(name: str, content: bytes) -> bool:
    """Whether this is the content that a document of this name was written with."""
    match = _NAME.fullmatch(name)
    return match is not None and match[1] == _digest(content)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:_DIGITS]
