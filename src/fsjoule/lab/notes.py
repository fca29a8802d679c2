"""Notes beside the coordinator of which run of this computer uses a place, and whether it has to release it.

labgrid gives a place to a user: all processes of that user may use it, and two runs at once would drive one board. And
it does not take a place from a process that was killed. A locked file says both; the lock ends with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import PlaceHeldError
from fsjoule.host.paths import state_dir

_LONGEST: Final = 100_000
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Content:
    """What a note says. `acquired` is whether the run acquired the place, or was about to; else it only used it.

    `before` is when the place had changed last before it was acquired, `after` when it was acquired; 0 if not known.
    """

    pid: int
    command: str
    acquired: bool = False
    before: float = 0.0
    after: float = 0.0

    def left_by(self, changed: float) -> bool:
        """Whether a place that this user has now, last changed at that time, is one that the run acquired.

        The run may have been killed before it knew; or somebody has acquired it by hand since.
        """
        return self.acquired and (changed == self.after if self.after else changed > self.before)


class Note:
    """An open, locked note."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.left = _parsed(os.pread(descriptor, _LONGEST, 0))

    def write(self, *, acquired: bool = False, before: float = 0.0, after: float = 0.0) -> None:
        """Say what this run does."""
        content = Content(os.getpid(), shlex.join(sys.argv), acquired, before, after)
        text = json.dumps(asdict(content)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)
        self.left = content


@contextmanager
def one_run_only(coordinator: str, name: str) -> Generator[Note]:
    """The note of a place. It is removed at the end, unless it says that the place is still to be released.

    Raises PlaceHeldError if another process uses the place.
    """
    directory = state_dir() / "places"
    directory.mkdir(exist_ok=True)
    path = directory / f"{coordinator}-{name}".replace("/", "_")
    descriptor = _locked(path)
    if descriptor is None:
        raise _held_by_another_run(name, path)
    note = Note(descriptor)
    try:
        yield note
    finally:
        if note.left is None or not note.left.acquired:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path) -> int | None:
    """The descriptor of the file, made if it is not there and locked; None if somebody else has locked it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # removed by a run that ended between our opening and our locking


def _held_by_another_run(name: str, path: Path) -> PlaceHeldError:
    try:
        content = _parsed(path.read_bytes())
    except OSError:
        content = None
    which = "" if content is None else f", process {content.pid} ({content.command[:_SHOWN]})"
    hint = "wait until it ends, or end it" if content is None else f"wait until it ends, or end it: kill {content.pid}"
    return PlaceHeldError(name, f"another run of yours on this computer{which}", hint=hint)


def _parsed(text: bytes) -> Content | None:
    """What a note says; None of one that says nothing, or was not written to its end."""
    try:
        fields: dict[str, Any] = json.loads(text)
        return Content(
            pid=int(fields["pid"]),
            command=str(fields["command"]),
            acquired=bool(fields["acquired"]),
            before=float(fields["before"]),
            after=float(fields["after"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
