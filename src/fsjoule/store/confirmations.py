"""The answers of fresh boots about changes in histories: a folder of JSON documents, which are never changed.

They are not in the index, because that can be deleted and made again. Copies from other machines merge, as runs do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from fsjoule.errors import ResultError
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.document_folder import add_document, read_documents

SCHEMA: Final = "fsjoule.confirmation/1"
FOLDER: Final = "confirmations"
_KEY_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class ConfirmedPoint:
    """A point of the history that was measured again: its run, the run's start, and its kernel."""

    run_id: str
    started_utc: str
    kernel_release: str
    kernel_version: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The outcome of a sequential test on fresh boots of the kernels of two points of a history.

    `series` is the key of the series in every index. `nominated_ratio` is the history's ratio, `ratio` the fresh
    boots' (after over before); `run_id` is their run. The rates are the test's. `hidden_by` is the share by which a
    clock may have rounded the figures, if that alone leaves it undecided.
    """

    made_utc: str
    series: str
    metric: str
    before: ConfirmedPoint
    after: ConfirmedPoint
    nominated_ratio: float
    outcome: Confirmed
    ratio: float | None
    pairs: int
    smallest_effect: float
    alpha: float
    beta: float
    run_id: str
    hidden_by: float | None = None
    schema: Literal["fsjoule.confirmation/1"] = SCHEMA


def keep(folder: Path, confirmation: Confirmation) -> Path:
    """Write a confirmation into the folder, which is made if necessary; returns the file. Raises StorageError."""
    words = f"{confirmation.series[:_KEY_SHOWN]}-{confirmation.metric}"
    return add_document(folder, confirmation.made_utc, words, confirmation)


def confirmations(folder: Path) -> tuple[list[Confirmation], list[str]]:
    """All confirmations of a folder, oldest first, and the faults of unreadable ones; empty without a folder."""
    documents, faults = read_documents(folder, Confirmation, SCHEMA, _check)
    return sorted(documents, key=lambda each: each.made_utc), faults


def _check(confirmation: Confirmation) -> None:
    for name in ("nominated_ratio", "ratio", "smallest_effect", "alpha", "beta", "hidden_by"):
        value: float | None = getattr(confirmation, name)
        if value is not None and not value > 0:
            raise ResultError(f"{name}: {value:g} is not a positive number")
