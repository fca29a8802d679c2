"""What became of changes in histories, and which runs were pruned from an index: JSON documents beside the runs.

No run folder has this, and no index alone. Documents are never changed: taking a state back, or a pruned run, is one
more document. In whatever order they are read, the outcome is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from fsjoule.errors import ResultError
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.store.document_folder import add_document, read_documents
from fsjoule.store.documents import check_schema, parse

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA: Final = "fsjoule.states/1"
FOLDER: Final = "states"
_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


class ChangeState(StrEnum):
    """How far a change has come, in that order; a refuted one is none."""

    NEW = "new"
    CONFIRMED = "confirmed"
    EXPLAINED = "explained"
    BISECTED = "bisected"
    ACCEPTED = "accepted"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state of the changes of one series between two points: times, kernels, or both.

    `series` is the key of the series in every index. `metric` and `ratio` are None for any metric and direction. `id`
    is the state's own in all documents, empty before it is kept.
    """

    series: str
    state: ChangeState
    metric: str | None = None
    ratio: float | None = None
    between_utc: tuple[str, str] | None = None
    kernels: tuple[Kernel, Kernel] | None = None
    run_id: str | None = None
    commit: str | None = None
    why: str | None = None
    made_utc: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class StatesDocument:
    """States that were kept or taken back at one time, and runs (by id) that were pruned, or brought back after that.

    The latest of a run's prunings and returns counts.
    """

    made_utc: str
    kept: tuple[KeptState, ...] = ()
    taken_back: tuple[KeptState, ...] = ()
    pruned: tuple[str, ...] = ()
    brought_back: tuple[str, ...] = ()
    schema: Literal["fsjoule.states/1"] = SCHEMA


def time_after(other_utc: str = "") -> str:
    """Now, to the microsecond, or just after another such time, which a clock that is ahead has made."""
    now_utc = f"{datetime.now(UTC):{_TIME}}"
    if now_utc > other_utc:
        return now_utc
    return f"{datetime.strptime(other_utc, _TIME) + timedelta(microseconds=1):{_TIME}}"  # noqa: DTZ007 - ends in Z


def add_states(folder: Path, document: StatesDocument) -> Path:
    """Write a document into the folder, which is made if necessary; returns the file. Raises StorageError."""
    parts = ("kept", "taken_back", "pruned", "brought_back")
    words = "-".join(part for part in parts if getattr(document, part))
    return add_document(folder, document.made_utc, words, document)


def read_states(folder: Path) -> tuple[list[StatesDocument], list[str]]:
    """All documents of a folder, and the faults of unreadable ones; empty without a folder."""
    return read_documents(folder, _read)


def _read(content: bytes) -> StatesDocument:
    parsed, content = parse(content)
    check_schema(parsed, SCHEMA, "it")
    document = _adapter().validate_json(content, strict=True)
    datetime.strptime(document.made_utc, _TIME)  # noqa: DTZ007 - ends in Z
    for state in (*document.kept, *document.taken_back):
        if not state.id:
            raise ResultError("a state has no id")
        if state.metric is not None and state.metric not in set(Metric):
            raise ResultError(f"{state.metric!r} is no metric")
        if state.ratio is not None and not state.ratio > 0:
            raise ResultError(f"ratio: {state.ratio:g} is not a positive number")
    return document


@cache
def _adapter() -> TypeAdapter[StatesDocument]:
    """Made when there is something to read: pydantic takes its time."""
    from pydantic import ConfigDict, TypeAdapter, with_config  # noqa: PLC0415

    return TypeAdapter(with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(StatesDocument))
