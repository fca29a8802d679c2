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
from fsjoule.virtual.lab.files import BoardRecord, LabRecord, lab_at

_STATUS_TIMEOUT_S: Final = 5.0
_PROFILE_TIMEOUT_S: Final = 60.0
# A board may end in the middle of an answer.
_NO_ANSWER: Final = (OSError, http.client.HTTPException)


def board_status(board: BoardRecord) -> dict[str, Any] | None:
    """The board's own status; None if it has not started or does not answer."""
    if not board.status_url:
        return None
    try:
        return json.loads(_asked(board, "/status"))
    except (*_NO_ANSWER, ValueError):
        return None


def set_seed(coordinator: str, place: str, seed: int) -> None:
    """Set the seed of the board at this place of this machine's lab at this coordinator.

    In guest time it is for the next power-on; otherwise for the losses of a disk's cache at the next power cut. Raises
    LabError if the board does not accept it.
    """
    found = _started_at(coordinator, place)
    if found is None:
        return
    record, board = found
    try:
        _asked(board, "/seed", put=str(seed).encode())
    except _NO_ANSWER as error:
        raise LabError(f"{_words(record, board)} accepts no seed: {error}", transient=True) from error


def losses(coordinator: str, place: str) -> tuple[str, ...]:
    """Losses of the disks of this machine's board at this place at the last power cut, in words."""
    found = _started_at(coordinator, place)
    status = (board_status(found[1]) if found else None) or {}
    return tuple(f"disk {name}: {loss}" for name, loss in status.get("losses", {}).items())


def profile_next(coordinator: str, place: str) -> None:
    """Let the board at this place of this machine's lab count instructions during its next power-on.

    Raises LabError without such a lab, or if its board cannot.
    """
    record, board = _this_board(coordinator, place)
    try:
        _asked(board, "/profile", put=b"")
    except _NO_ANSWER as error:
        raise LabError(f"{_words(record, board)} counts no instructions: {error}") from error


def take_profile(coordinator: str, place: str, window: str) -> Profile | None:
    """The profile of the named window, which can be taken once; None if no such window has ended.

    Raises LabError without such a lab, or without an answer.
    """
    record, board = _this_board(coordinator, place)
    try:
        return read_profile(_asked(board, f"/profile/{window}", timeout_s=_PROFILE_TIMEOUT_S))
    except _NO_ANSWER as error:
        if isinstance(error, urllib.error.HTTPError) and error.code == HTTPStatus.NOT_FOUND:
            return None
        raise LabError(f"{_words(record, board)} gives no profile: {error}") from error


def _asked(board: BoardRecord, path: str, *, put: bytes | None = None, timeout_s: float = _STATUS_TIMEOUT_S) -> bytes:
    """The answer of a board. Raises what `_NO_ANSWER` names."""
    url = urllib.parse.urljoin(board.status_url, path)
    request = urllib.request.Request(url, put, method="GET" if put is None else "PUT")  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
        return answer.read()


def _words(record: LabRecord, board: BoardRecord) -> str:
    which = "" if len(record.boards) == 1 else f" at the place {board.place!r}"
    return f"the board{which} of the lab {record.name!r}"


def _this_board(coordinator: str, place: str) -> tuple[LabRecord, BoardRecord]:
    found = _started_at(coordinator, place)
    if found is None:
        raise LabError("profiles need a virtual lab of this machine, which this run does not use")
    return found


def _started_at(coordinator: str, place: str) -> tuple[LabRecord, BoardRecord] | None:
    """This machine's lab at a coordinator, and its board at a place once it has started."""
    record = lab_at(coordinator)
    board = None if record is None else record.board_at(place)
    return None if record is None or board is None or not board.status_url else (record, board)
