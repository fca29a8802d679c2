"""What became of changes in histories, which runs were pruned from an index, and which places were repaired.

JSON documents beside the runs.

No run folder has this, and no index alone. Documents are never changed: taking a state back, or a pruned run, is one
more document. In whatever order they are read, the outcome is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from fsjoule.errors import ResultError
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.store.document_folder import add_document, read_documents

SCHEMA: Final = "fsjoule.states/1"
FOLDER: Final = "states"
_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
_SECOND: Final = "%Y-%m-%dT%H:%M:%SZ"


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
class Restart:
    """The control charts of a place of an exporter ("" if it has none) begin anew, because of a repair: `why`."""

    place: str
    exporter: str
    why: str
    made_utc: str


@dataclass(frozen=True, slots=True)
class StatesDocument:
    """States that were kept or taken back at one time, and runs (by id) that were pruned, or brought back after that.

    The latest of a run's prunings and returns counts. `restarts` are of places; the index needs none of them.
    """

    made_utc: str
    kept: tuple[KeptState, ...] = ()
    taken_back: tuple[KeptState, ...] = ()
    pruned: tuple[str, ...] = ()
    brought_back: tuple[str, ...] = ()
    restarts: tuple[Restart, ...] = ()
    schema: Literal["fsjoule.states/1"] = SCHEMA


def time_after(other_utc: str = "") -> str:
    """Now, to the microsecond, or just after another such time, which a clock that is ahead has made."""
    now_utc = f"{datetime.now(UTC):{_TIME}}"
    if now_utc > other_utc:
        return now_utc
    return f"{datetime.strptime(other_utc, _TIME) + timedelta(microseconds=1):{_TIME}}"  # noqa: DTZ007 - ends in Z


def restart_place(folders: Iterable[Path], place: str, exporter: str, why: str) -> None:
    """Keep in the states of these folders of runs that a place's charts begin anew now. Raises StorageError."""
    now_utc = time_after()
    restart = Restart(place, exporter, why, f"{now_utc[: len('2026-03-09T10:00:00')]}Z")
    for folder in folders:
        add_states(folder / FOLDER, StatesDocument(now_utc, restarts=(restart,)))


def add_states(folder: Path, document: StatesDocument) -> Path:
    """Write a document into the folder, which is made if necessary; returns the file. Raises StorageError."""
    parts = ("kept", "taken_back", "pruned", "brought_back", "restarts")
    words = "-".join(part for part in parts if getattr(document, part))
    return add_document(folder, document.made_utc, words, document)


def read_states(folder: Path) -> tuple[list[StatesDocument], list[str]]:
    """All documents of a folder, and the faults of unreadable ones; empty without a folder."""
    return read_documents(folder, StatesDocument, SCHEMA, _check)


def read_restarts(folders: Iterable[Path]) -> tuple[list[Restart], list[str]]:
    """The restarts of all documents of states in these folders of runs, oldest first, and faults of unreadable ones."""
    found: set[Restart] = set()
    faults: list[str] = []
    for folder in folders:
        documents, wrong = read_states(folder / FOLDER)
        found |= {restart for document in documents for restart in document.restarts}
        faults += wrong
    return sorted(found, key=lambda each: each.made_utc), faults


def _check(document: StatesDocument) -> None:
    datetime.strptime(document.made_utc, _TIME)  # noqa: DTZ007 - ends in Z
    for state in (*document.kept, *document.taken_back):
        if not state.id:
            raise ResultError("a state has no id")
        if state.metric is not None and state.metric not in set(Metric):
            raise ResultError(f"{state.metric!r} is no metric")
        if state.ratio is not None and not state.ratio > 0:
            raise ResultError(f"ratio: {state.ratio:g} is not a positive number")
    for restart in document.restarts:
        datetime.strptime(restart.made_utc, _SECOND)  # noqa: DTZ007 - ends in Z
