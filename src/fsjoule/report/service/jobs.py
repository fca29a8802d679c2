"""What the service asks its workers for, and what they make. Importing it takes no charts and no numerics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fsjoule.report.service.asked import Asked
from fsjoule.store.folder import GATE_FILE, MEASUREMENTS_FOLDER, RUN_FILE


class Format(StrEnum):
    HTML = "html"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Task:
    """One page or document to be made. `run_id` and `folder` are those of a run's page, `folder` as the index has it.

    With the state of what it depends on it is the key under which the page is kept.
    """

    asked: Asked
    format: Format
    state: str
    run_id: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Locate:
    """The folder of a run, as the index has it."""

    run_id: str
    state: str


@dataclass(frozen=True, slots=True)
class Search:
    """The address that some words lead to."""

    text: str
    state: str


Job = Task | Locate | Search


@dataclass(frozen=True, slots=True)
class Made:
    """A page or a document, packed by gzip; `size_bytes` is what it unpacks to."""

    packed: bytes
    size_bytes: int


def signature(folder: str) -> str | None:
    """What changes when a run folder does; None if it is not reachable. `folder` is the index's, never a request's."""
    parts: list[object] = []
    for name in (RUN_FILE, GATE_FILE, MEASUREMENTS_FOLDER):
        try:
            status = (Path(folder) / name).stat()
        except (OSError, ValueError):
            if name == RUN_FILE:
                return None
            parts.append(None)
        else:
            parts.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return repr(parts)
