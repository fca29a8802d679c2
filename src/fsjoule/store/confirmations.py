"""What fresh boots said about a change in a history: one JSON document each, never changed, in a folder of them.

They are not in the index, which can be deleted and made again; copied from another machine they merge, as runs do.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from fsjoule.errors import ResultError, StorageError
from fsjoule.host.inside import DOCUMENT_BYTES, list_inside, read_inside, shown
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.documents import parse

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA: Final = "fsjoule.confirmation/1"
FOLDER: Final = "confirmations"
_ENDING: Final = ".json"
_ID_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class ConfirmedPoint:
    """A point of the history that was measured anew: its run, when that began, and the kernel that it had."""

    run_id: str
    started_utc: str
    kernel_release: str
    kernel_version: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The outcome of a sequential test on fresh boots of the kernels of two points of a history.

    `series` is the key of the series in every index. `nominated_ratio` is what the history showed, `ratio` what the
    fresh boots did (after over before); `run_id` is their run. The rates are those that the test was asked to hold.
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
    schema: Literal["fsjoule.confirmation/1"] = SCHEMA


def keep(folder: Path, confirmation: Confirmation) -> Path:
    """Write it into the folder, which is made if it is not there. Raises StorageError."""
    from fsjoule.store.files import write_file  # noqa: PLC0415 - reading, which is done each time, does without

    stamp = confirmation.made_utc.replace("-", "").replace(":", "")
    path = folder / f"{stamp}-{confirmation.series[:8]}-{confirmation.metric}-{secrets.token_hex(_ID_BYTES)}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, (json.dumps(asdict(confirmation), indent=2, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}") from error
    return path


def confirmations(folder: Path) -> tuple[list[Confirmation], list[str]]:
    """All of a folder, oldest first, and what is wrong with those that cannot be read. No folder has none."""
    found: list[Confirmation] = []
    faults: list[str] = []
    try:
        listed = list_inside(folder)
    except ResultError as error:
        return [], [error.what]
    faults += [f"{shown(folder, name)}: {why}" for name, why in listed.refused.items() if name.endswith(_ENDING)]
    for name in listed.files:
        # What was cut short while it was written has another ending.
        if not name.endswith(_ENDING) or name.startswith("."):
            continue
        try:
            content = read_inside(folder, name, at_most=DOCUMENT_BYTES)
            if content is not None:
                found.append(_read(content))
        except (ValueError, ResultError) as error:
            faults.append(f"{shown(folder, name)}: {error}")
    return sorted(found, key=lambda each: each.made_utc), faults


def _read(content: bytes) -> Confirmation:
    document, content = parse(content)
    if not isinstance(document, dict) or cast("dict[str, Any]", document).get("schema") != SCHEMA:
        raise ResultError(f"it is no {SCHEMA}")
    confirmation = _adapter().validate_json(content, strict=True)
    for name in ("nominated_ratio", "ratio", "smallest_effect", "alpha", "beta"):
        value: float | None = getattr(confirmation, name)
        if value is not None and not value > 0:
            raise ResultError(f"{name}: {value:g} is no positive number")
    return confirmation


@cache
def _adapter() -> TypeAdapter[Confirmation]:
    """Made when there is something to read: most trends have no confirmation, and pydantic takes its time."""
    from pydantic import ConfigDict, TypeAdapter, with_config  # noqa: PLC0415

    return TypeAdapter(with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(Confirmation))
