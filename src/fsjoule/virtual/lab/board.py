"""Requests to a lab's board while the lab is up, and the energy counter that is simulated on it."""

from __future__ import annotations

import http.client
import json
import shlex
import struct
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from fsjoule.errors import LabError, MeterError
from fsjoule.model import Profile
from fsjoule.model.power_on import ConsoleLine, PowerOn
from fsjoule.ports import Shell
from fsjoule.virtual.lab.files import BoardRecord, LabRecord, lab_at

_STATUS_TIMEOUT_S: Final = 5.0
_PROFILE_TIMEOUT_S: Final = 60.0
# A board may end in the middle of an answer.
_NO_ANSWER: Final = (OSError, http.client.HTTPException)
# As in probe/guest_profile.c: magic, records, time at the start mark and at the stop mark, busy time in between, time
# of an instruction.
_PROFILE_HEADER: Final = struct.Struct("<8sQqqqqqq")
_PROFILE_MAGIC: Final = b"FSJPROF\0"
_PROFILE_RECORD: Final = np.dtype([("address", "<u8"), ("page", "<u8"), ("executed", "<u8")])
# The emulated processor's vector for an instruction without its memory, which is repeated and so counted twice.
_DATA_ABORT: Final = 0xFFFF0010
_COUNTER_PROGRAM: Final = "/tmp/fsjoule-simulated-counter"  # noqa: S108 - on the board, whose /tmp is ours alone
_COUNTER_UPDATE_S: Final = 0.05
# That of a package zone with 61 microjoules a step, as Intel's processors have it.
_COUNTER_RANGE_UJ: Final = 262_143_328_850
_COUNTER_START_S: Final = 20.0
# The file is written in place: a reader never finds it empty.
_COUNTER_TEXT: Final = """\
cd "$1" && milliwatts=$2
mkfifo timer && exec 3<> timer
while :; do
    { read -r _; read -r _; read -r _ _ ns _; } < /proc/timer_list
    echo $(((ns / 1000 * milliwatts / 1000) % @RANGE@)) 1<> energy_uj
    read -r -t @UPDATE@ _ <&3
done
"""


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


def card_file(coordinator: str, place: str) -> Path | None:
    """The file that is the card of this machine's board at this place while it is on; None if it is not in guest time.

    Raises LabError if the board does not answer.
    """
    found = _started_at(coordinator, place)
    if found is None:
        return None
    status = board_status(found[1])
    if status is None:
        raise LabError(f"{_words(*found)} does not tell where its card is", transient=True)
    powered = status["card"]["powered"]
    return Path(powered) if powered else None


def record_writes(coordinator: str, place: str) -> Path | None:
    """Let the board at this place of this machine's lab record its writes to the card in its next power-on.

    Returns their file (`model/card_writes.py`); None without such a lab. Raises LabError if the board cannot.
    """
    found = _started_at(coordinator, place)
    if found is None:
        return None
    try:
        _asked(found[1], "/writes", put=b"")
        return Path(json.loads(_asked(found[1], "/status"))["card"]["writes"])
    except _NO_ANSWER as error:
        raise LabError(f"{_words(*found)} does not record the writes to its card: {error}") from error


def own_lines(coordinator: str, place: str) -> PowerOn | None:
    """The console of the board in guest time at this place of this machine's lab, with its own times, once a power-on.

    None without such a lab. Raises LabError if the board does not tell.
    """
    found = _started_at(coordinator, place)
    if found is None:
        return None
    try:
        return PowerOn(0.0, 0.0, *(_lines(_asked(found[1], f"/profile/{name}")) for name in ("console", "marks")))
    except (*_NO_ANSWER, ValueError) as error:
        raise LabError(f"{_words(*found)} does not tell its console's times: {error}", transient=True) from error


def _lines(told: bytes) -> tuple[ConsoleLine, ...]:
    """The lines of a UART, each begun by its time in ns, as probe/guest_probe.c writes them."""
    lines = (line.partition(" ") for line in told.decode(errors="replace").splitlines() if line)
    return tuple(ConsoleLine(text, int(time_ns) * 1e-9) for time_ns, _, text in lines)


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


def read_profile(content: bytes) -> Profile:
    """The executed instructions of a window, from the probe's answer. Raises LabError for invalid content."""
    try:
        magic, records, start_ns, stop_ns, busy_ns, instruction_ns, of_programs, begun_again = (
            _PROFILE_HEADER.unpack_from(content)
        )
        rows = np.frombuffer(content, _PROFILE_RECORD, records, _PROFILE_HEADER.size)
    except (struct.error, ValueError) as error:
        raise LabError(f"the probe's profile cannot be read: {error}") from error
    if magic != _PROFILE_MAGIC or len(content) != _PROFILE_HEADER.size + rows.nbytes:
        raise LabError("the probe's answer is not a profile")
    rows = np.sort(rows, order=["address", "page"])
    return Profile(
        addresses=rows["address"].copy(),
        pages=rows["page"].copy(),
        executed=rows["executed"].copy(),
        window_ns=stop_ns - start_ns,
        busy_ns=busy_ns,
        instruction_ns=instruction_ns,
        repeated=int(rows["executed"][rows["address"] == _DATA_ABORT].sum()) + begun_again,
        of_programs=of_programs if of_programs >= 0 else None,
    )


def start_simulated_counter(shell: Shell, device: str, watts: float) -> None:
    """Start a counter of the powercap class on a booted board, which has none: files that a program on it keeps.

    It counts a steady power, twenty times a second, by the kernel's monotonic clock. It ends with the board's power.
    Raises MeterError if it does not count.
    """
    zone = PurePosixPath(device).parent
    text = _COUNTER_TEXT.replace("@RANGE@", str(_COUNTER_RANGE_UJ)).replace("@UPDATE@", str(_COUNTER_UPDATE_S))
    shell.put(_COUNTER_PROGRAM, text.encode())
    at = shlex.quote(str(zone))
    command = (
        f"mkdir -p {at} && echo simulated > {at}/name && echo {_COUNTER_RANGE_UJ} > {at}/max_energy_range_uj "
        f"&& echo {_COUNTER_UPDATE_S * 1e6:.0f} > {at}/simulated || exit 1; "
        f"busybox sh {_COUNTER_PROGRAM} {at} {round(watts * 1000)} < /dev/null > {at}/log 2>&1 & "
        f"until [ -s {shlex.quote(device)} ]; do sleep 0.1; done"
    )
    done = shell.run(("sh", "-c", command), timeout_s=_COUNTER_START_S)
    if done.exit_code != 0:
        raise MeterError(f"the simulated counter {device} cannot be made: {done.stdout.strip()[-200:]}")
