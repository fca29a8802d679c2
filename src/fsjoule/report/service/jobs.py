"""What the service asks its workers for, what they make, and the errors of both.

Importing it takes no charts and no numerics.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fsjoule.errors import ConfigError, FsjouleError, HostError, ResultError, StorageError
from fsjoule.report.service.asked import AskedPage
from fsjoule.store.folder import GATE_FILE, MEASUREMENTS_FOLDER, RUN_FILE


class Format(StrEnum):
    HTML = "html"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Task:
    """One page or document to be made. `run_id` and `folder` are those of a run's page, `folder` as the index has it.

    With the state of what it depends on it is the key under which the page is kept.
    """

    asked: AskedPage
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
class SearchTask:
    """The address that some words lead to."""

    text: str
    state: str


Job = Task | Locate | SearchTask


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


class MissingError(ConfigError):
    """There is no such page, run or series."""


class UnmadeError(HostError):
    """The page was not made, because of the time limit or the service's own processes. Its text is for readers."""

    def __init__(self, what: str, *, hint: str) -> None:
        super().__init__(what, transient=True, hint=hint)


class BugError(FsjouleError):
    """A bug, met while a page was made. It has the traceback, which is no reader's business."""

    def __init__(self, traceback: str) -> None:
        super().__init__("this is a bug in fsjoule")
        self.traceback = traceback

    @property
    def told(self) -> str:
        """What whoever started the service should see."""
        return f"{self.traceback}this is a bug in fsjoule; please report it, with the lines above"


def for_readers(error: FsjouleError, *, of_lab: bool) -> UnmadeError:
    """What readers are told of an index, or a lab, that cannot be read: without its address, its path or its user."""
    if of_lab:
        what = "the lab's coordinator does not answer, or its runs cannot be read"
    elif isinstance(error, ResultError):
        what = "the lab's index cannot be read: missing, damaged, not allowed, or of another version of fsjoule"
    elif isinstance(error, HostError) and not isinstance(error, StorageError):
        what = "the lab's index is held by a writer, or its server does not answer"
    else:
        what = "the lab's index cannot be opened"
    return UnmadeError(what, hint="try again later; whoever runs this service finds the reason in its log")
