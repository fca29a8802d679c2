"""The user of a lab: the process it ends with, or a run on one of its places. Nobody else may remove the lab."""

from __future__ import annotations

import fcntl
import os

from fsjoule.errors import LabError
from fsjoule.host.computer_lock import command, locker
from fsjoule.host.paths import place_file
from fsjoule.virtual.lab.files import LabRecord


def others_with(record: LabRecord) -> str | None:
    """Another user of the lab, in words: its living owner, or a run on one of its places. None if there is none."""
    owner = record.owner
    if owner is not None and owner.pid != os.getpid() and owner.alive():
        return f"belongs to process {owner.pid} ({command(owner.pid)}), which still runs"
    for board in record.boards:
        user = _user_of(record.coordinator, board.place)
        if user is not None and user != os.getpid():
            return f"is used by a run, process {user} ({command(user)})" if user else "is used by a run"
    return None


def refuse_to_touch(record: LabRecord, doing: str, faults: tuple[str, ...]) -> None:
    """Raise LabError if another process uses the lab; the message includes the lab's `faults`."""
    if who := others_with(record):
        wrong = f"; {'; '.join(faults)}" if faults else ""
        raise LabError(
            f"the lab {record.name!r} cannot be {doing}: it {who}{wrong}",
            hint=f"wait for its end, or force it: fsjoule lab down --force --name {record.name}",
        )


def _user_of(coordinator: str, place: str) -> int | None:
    """The process that holds the place's lock of runs (fsjoule.lab.notes), 0 if its number is unknown."""
    try:
        descriptor = os.open(place_file("places", coordinator, place), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return locker(os.fstat(descriptor).st_ino)
    finally:
        os.close(descriptor)
    return None
