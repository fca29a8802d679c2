"""Who removes objects, or has last: a push learns from it that an object on which it relies may be gone.

An object that a push has found may be removed before the push has written the manifest that refers to it. So a push
first names its objects (`intents.py`), then reads the mark, looks for the objects, sends the missing ones, and reads
the mark again before it writes the manifest. If the mark is another then, a removal has overlapped, and the push looks
once more. A removal that begins later sees what the push has named.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import TypeAdapter, with_config

from fsjoule.errors import ObjectStoreError, ResultError
from fsjoule.host.inside import MIB
from fsjoule.host.json_text import json_text
from fsjoule.store.objects.bucket import Bucket
from fsjoule.store.schemas import STRICT, Kind

KEY: Final = "prune.json"
# A removal ends itself before this time is over. One that was killed is over then.
LONGEST: Final = timedelta(minutes=15)
_SKEW: Final = timedelta(minutes=5)  # clocks differ
_POLL_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class PruneMark:
    """`until_utc` is the end of a removal that goes on, empty after its end."""

    by: str
    id: str
    until_utc: str

    @property
    def going_on(self) -> bool:
        """Whether objects may be being removed, for somebody else."""
        if not self.until_utc:
            return False
        left = datetime.fromisoformat(self.until_utc) - datetime.now(UTC)
        # No removal has more time left: a clock was wrong, and nobody may wait for it.
        return -_SKEW < left <= LONGEST + _SKEW

    @property
    def in_time(self) -> bool:
        """Whether the removal itself may go on. One request more takes less than the skew of clocks."""
        return datetime.now(UTC) < datetime.fromisoformat(self.until_utc)


def read_mark(bucket: Bucket) -> tuple[PruneMark, str] | None:
    """The mark and its version; None if nothing was ever removed."""
    found = bucket.get(KEY, at_most=MIB)
    if found is None:
        return None
    content, version = found
    try:
        return _MARK.read(_MARK.parse(content)[1]), version
    except ValueError as error:
        raise ResultError(f"{bucket.named(KEY)} is damaged:{error}", hint="remove that object") from error


def idle_version(bucket: Bucket, say: Callable[[str], None]) -> str:
    """The mark's version as soon as nothing is being removed; empty if nothing ever was."""
    told = False
    while (found := read_mark(bucket)) is not None and found[0].going_on:
        if not told:
            say(f"waiting for {found[0].by}, which removes objects until {found[0].until_utc} at the latest")
            told = True
        time.sleep(_POLL_S)
    return "" if found is None else found[1]


def begin(bucket: Bucket) -> PruneMark:
    """Say that a removal begins. Raises ObjectStoreError if another goes on."""
    found = read_mark(bucket)
    if found is not None and found[0].going_on:
        raise _busy(bucket, found[0].by)
    until = (datetime.now(UTC) + LONGEST).isoformat(timespec="seconds")
    mark = PruneMark(f"{socket.gethostname()}, process {os.getpid()}", secrets.token_hex(8), until)
    if not bucket.put_if(KEY, json_text(_MARK.adapter, mark), version=None if found is None else found[1]):
        raise _busy(bucket, "another process")
    return mark


def end(bucket: Bucket, mark: PruneMark) -> None:
    """Say that a removal has ended."""
    bucket.put(KEY, json_text(_MARK.adapter, PruneMark(mark.by, mark.id, "")))


def _busy(bucket: Bucket, by: str) -> ObjectStoreError:
    hint = f"wait for it: it ends within {(LONGEST + _SKEW).total_seconds() / 60:.0f} minutes, also if it was killed"
    return ObjectStoreError(f"{by} is removing objects from {bucket.address}", hint=hint)


def _check(mark: PruneMark) -> None:
    if mark.until_utc and datetime.fromisoformat(mark.until_utc).tzinfo is None:
        raise ValueError("until_utc: it has no time zone")


_MARK: Final = Kind(TypeAdapter(with_config(STRICT)(PruneMark)), _check, at_most=MIB)
