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
from fsjoule.virtual.lab.files import LabPaths, LabRecord, lab_names

_STATUS_TIMEOUT_S: Final = 5.0
_PROFILE_TIMEOUT_S: Final = 60.0
# A board may end in the middle of an answer.
_NO_ANSWER: Final = (OSError, http.client.HTTPException)


def board_status(record: LabRecord) -> dict[str, Any] | None:
    """The board's own status; None if it has not started or does not answer."""
    if not record.board_status_url:
        return None
    try:
        with urllib.request.urlopen(record.board_status_url, timeout=_STATUS_TIMEOUT_S) as answer:  # noqa: S310
            return json.load(answer)
    except (*_NO_ANSWER, ValueError):
        return None


def set_seed(coordinator: str, seed: int) -> None:
    """Set the seed of the board of this machine's lab at this coordinator.

    In guest time it is for the next power-on; otherwise for the losses of a disk's cache at the next power cut. Raises
    LabError if the board does not accept it.
    """
    for record in _labs_at(coordinator):
        url = urllib.parse.urljoin(record.board_status_url, "/seed")
        request = urllib.request.Request(url, str(seed).encode(), method="PUT")  # noqa: S310 - our own
        try:
            urllib.request.urlopen(request, timeout=_STATUS_TIMEOUT_S).close()  # noqa: S310
        except _NO_ANSWER as error:
            raise LabError(f"the board of the lab {record.name!r} accepts no seed: {error}", transient=True) from error


def losses(coordinator: str) -> tuple[str, ...]:
    """Losses of the disks of this machine's lab at this coordinator at the last power cut, in words."""
    told: list[str] = []
    for record in _labs_at(coordinator):
        status = board_status(record) or {}
        told += [f"disk {name}: {loss}" for name, loss in status.get("losses", {}).items()]
    return tuple(told)


def profile_next(coordinator: str) -> None:
    """Let the board of this machine's lab at this coordinator count instructions during its next power-on.

    Raises LabError without such a lab, or if its board cannot.
    """
    for record in _this_lab(coordinator):
        url = urllib.parse.urljoin(record.board_status_url, "/profile")
        request = urllib.request.Request(url, b"", method="PUT")  # noqa: S310 - our own
        try:
            urllib.request.urlopen(request, timeout=_STATUS_TIMEOUT_S).close()  # noqa: S310
        except _NO_ANSWER as error:
            raise LabError(f"the board of the lab {record.name!r} counts no instructions: {error}") from error


def take_profile(coordinator: str, window: str) -> Profile | None:
    """The profile of the named window, which can be taken once; None if no such window has ended.

    Raises LabError without such a lab, or without an answer.
    """
    for record in _this_lab(coordinator):
        url = urllib.parse.urljoin(record.board_status_url, f"/profile/{window}")
        try:
            with urllib.request.urlopen(url, timeout=_PROFILE_TIMEOUT_S) as answer:  # noqa: S310
                return read_profile(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise LabError(f"the board of the lab {record.name!r} gives no profile: {error}") from error
        except _NO_ANSWER as error:
            raise LabError(f"the board of the lab {record.name!r} gives no profile: {error}") from error
    raise AssertionError("there is one lab, or an error")


def _this_lab(coordinator: str) -> list[LabRecord]:
    found = _labs_at(coordinator)
    if not found:
        raise LabError("profiles need a virtual lab of this machine, which this run does not use")
    return found[:1]


def _labs_at(coordinator: str) -> list[LabRecord]:
    """This machine's lab at a coordinator, once its board has started."""
    records = (LabPaths.of(name).read() for name in lab_names())
    return [r for r in records if r is not None and r.coordinator == coordinator and r.board_status_url]
