"""Requests to a lab's board while the lab is up."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from typing import Any, Final

from fsjoule.errors import LabError
from fsjoule.model import Profile
from fsjoule.virtual.board.executed import read_profile
from fsjoule.virtual.lab.files import LabRecord, lab_at

_STATUS_TIMEOUT_S: Final = 5.0
_PROFILE_TIMEOUT_S: Final = 60.0
# A board may end in the middle of an answer.
_NO_ANSWER: Final = (OSError, http.client.HTTPException)


def board_status(record: LabRecord) -> dict[str, Any] | None:
    """The board's own status; None if it has not started or does not answer."""
    if not record.board_status_url:
        return None
    try:
        return json.loads(_asked(record, "/status"))
    except (*_NO_ANSWER, ValueError):
        return None


def set_seed(coordinator: str, seed: int) -> None:
    """Set the seed of the board of this machine's lab at this coordinator.

    In guest time it is for the next power-on; otherwise for the losses of a disk's cache at the next power cut. Raises
    LabError if the board does not accept it.
    """
    record = _started_at(coordinator)
    if record is None:
        return
    try:
        _asked(record, "/seed", put=str(seed).encode())
    except _NO_ANSWER as error:
        raise LabError(f"the board of the lab {record.name!r} accepts no seed: {error}", transient=True) from error


def losses(coordinator: str) -> tuple[str, ...]:
    """Losses of the disks of this machine's lab at this coordinator at the last power cut, in words."""
    record = _started_at(coordinator)
    status = (board_status(record) if record else None) or {}
    return tuple(f"disk {name}: {loss}" for name, loss in status.get("losses", {}).items())


def profile_next(coordinator: str) -> None:
    """Let the board of this machine's lab at this coordinator count instructions during its next power-on.

    Raises LabError without such a lab, or if its board cannot.
    """
    record = _this_lab(coordinator)
    try:
        _asked(record, "/profile", put=b"")
    except _NO_ANSWER as error:
        raise LabError(f"the board of the lab {record.name!r} counts no instructions: {error}") from error


def take_profile(coordinator: str, window: str) -> Profile | None:
    """The profile of the named window, which can be taken once; None if no such window has ended.

    Raises LabError without such a lab, or without an answer.
    """
    record = _this_lab(coordinator)
    try:
        return read_profile(_asked(record, f"/profile/{window}", timeout_s=_PROFILE_TIMEOUT_S))
    except _NO_ANSWER as error:
        if isinstance(error, urllib.error.HTTPError) and error.code == HTTPStatus.NOT_FOUND:
            return None
        raise LabError(f"the board of the lab {record.name!r} gives no profile: {error}") from error


def _asked(record: LabRecord, path: str, *, put: bytes | None = None, timeout_s: float = _STATUS_TIMEOUT_S) -> bytes:
    """The answer of a lab's board. Raises what `_NO_ANSWER` names."""
    url = urllib.parse.urljoin(record.board_status_url, path)
    request = urllib.request.Request(url, put, method="GET" if put is None else "PUT")  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
        return answer.read()


def _this_lab(coordinator: str) -> LabRecord:
    record = _started_at(coordinator)
    if record is None:
        raise LabError("profiles need a virtual lab of this machine, which this run does not use")
    return record


def _started_at(coordinator: str) -> LabRecord | None:
    """This machine's lab at a coordinator, once its board has started."""
    record = lab_at(coordinator)
    return record if record and record.board_status_url else None
