"""What a lab's board is told, and what it tells, while the lab is up."""

from __future__ import annotations

import http.client
import json
import urllib.parse
import urllib.request
from typing import Any, Final

from fsjoule.errors import LabError
from fsjoule.virtual.lab.files import LabPaths, LabRecord, lab_names

_STATUS_TIMEOUT_S: Final = 5.0
# A board that ends may do so in the middle of an answer.
_NO_ANSWER: Final = (OSError, http.client.HTTPException)


def board_status(record: LabRecord) -> dict[str, Any] | None:
    """What the board says of itself; None if it has not started, or does not answer."""
    if not record.board_status_url:
        return None
    try:
        with urllib.request.urlopen(record.board_status_url, timeout=_STATUS_TIMEOUT_S) as answer:  # noqa: S310
            return json.load(answer)
    except (*_NO_ANSWER, ValueError):
        return None


def set_seed(coordinator: str, seed: int) -> None:
    """Tell the board of the lab at this coordinator the seed of what it leaves to chance.

    That is by what the next power-on differs from others in guest time, or what a disk's cache loses with the power.

    A lab that is not one of this machine's is left as it is. Raises LabError if the board does not take it.
    """
    for record in _labs_at(coordinator):
        url = urllib.parse.urljoin(record.board_status_url, "/seed")
        request = urllib.request.Request(url, str(seed).encode(), method="PUT")  # noqa: S310 - our own
        try:
            urllib.request.urlopen(request, timeout=_STATUS_TIMEOUT_S).close()  # noqa: S310
        except _NO_ANSWER as error:
            raise LabError(f"the board of the lab {record.name!r} takes no seed: {error}", transient=True) from error


def losses(coordinator: str) -> tuple[str, ...]:
    """What the last cut of power took from the disks of the board of the lab at this coordinator, in words.

    There is nothing to say of disks that keep their cache, nor of a lab that is not one of this machine's.
    """
    told: list[str] = []
    for record in _labs_at(coordinator):
        status = board_status(record) or {}
        told += [f"disk {name}: {loss}" for name, loss in status.get("losses", {}).items()]
    return tuple(told)


def _labs_at(coordinator: str) -> list[LabRecord]:
    """The lab of this machine at a coordinator, once its board has started."""
    records = (LabPaths.of(name).read() for name in lab_names())
    return [r for r in records if r is not None and r.coordinator == coordinator and r.board_status_url]
