"""Notes beside the coordinator: which run on this computer uses a place, and whether it has to release it.

labgrid gives a place to a user: all processes of that user may use it, so two runs could drive one board. And a killed
process keeps its place. A locked file tells both; the lock ends with the process. Runs have a note each, and so have
jobs (`fsjoule.lab.jobs`), within which runs use the job's place.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import shlex
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from labgrid.remote.common import Place

from fsjoule.errors import PlaceHeldError
from fsjoule.host.locks import locked
from fsjoule.host.paths import place_file
from fsjoule.host.process_ref import ProcessRef
from fsjoule.lab.coordinator import user
from fsjoule.model.labels import without_passwords

# The process of the run, in one that has a board for it: to end that one alone leaves the others measuring.
RUN: Final[ContextVar[int]] = ContextVar("RUN", default=0)
_LONGEST: Final = 100_000
_SHOWN: Final = 200
_LOOK_S: Final = 0.1
# `in_use` has the lock for a moment.
_GLANCE_S: Final = 1.0


class NoteKind(StrEnum):
    """Whose note it is; the value is the name of the folder."""

    RUN = "places"
    JOB = "jobs"


@dataclass(frozen=True, slots=True)
class Content:
    """A note's content. `acquired`: the run acquired the place, or was about to; otherwise it only used it.

    `run` is the process that ends all of a run on several boards; 0 if it is `pid`.
    `before` and `after` are the times of the place's last change before the acquisition, and since then as far as its
    holder knew; 0 if unknown.
    A job has more: its `number` in CI (empty elsewhere), and the first process of its command's group, in which `boot`
    of this computer.
    """

    pid: int
    command: str
    acquired: bool = False
    before: float = 0.0
    after: float = 0.0
    place: str = ""
    number: str = ""
    leader: ProcessRef | None = None
    boot: str = ""
    run: int = 0

    def left_by(self, changed: float) -> bool:
        """Whether the run acquired this user's place, which last changed at `changed`.

        The run may have been killed before it wrote `after`; or the user has acquired the place by hand since.
        """
        return self.acquired and (changed == self.after if self.after else changed > self.before)


class Note:
    """A place's note that this process has locked. `left` is what an earlier process or this one wrote, or None."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self._name = descriptor, name
        self.left = _parsed(os.pread(descriptor, _LONGEST, 0))

    def acquired(self, place: Place) -> bool:
        """Whether this user has the place now, and an earlier process that wrote the note has acquired it."""
        return place.acquired == user() and self.left is not None and self.left.left_by(place.changed)

    def write(self, *, acquired: bool = False, before: float = 0.0, after: float = 0.0) -> None:
        """Replace what an earlier process left, or say more of this process's place."""
        mine = self.left if self.left is not None and self.left.pid == os.getpid() else None
        if mine is None:
            mine = Content(os.getpid(), shlex.join(without_passwords(sys.argv)), place=self._name, run=RUN.get())
        self.keep(dataclasses.replace(mine, acquired=acquired, before=before, after=after))

    def keep(self, content: Content) -> None:
        # Readers need no lock, and a kill may come at any moment: the first line is always whole.
        text = json.dumps(dataclasses.asdict(content)).encode() + b"\n"
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))
        self.left = content


@contextmanager
def one_run_only(
    coordinator: str, name: str, kind: NoteKind = NoteKind.RUN, *, wait_s: float = _GLANCE_S
) -> Generator[Note]:
    """The note of a place, removed at the end unless it tells to release.

    Raises PlaceHeldError if another process has it for longer than `wait_s`.
    """
    path = _path(coordinator, name, kind)
    deadline = time.monotonic() + wait_s
    while (descriptor := locked(path)) is None:
        if time.monotonic() >= deadline:
            raise _held_by_another_run(name, path)
        time.sleep(_LOOK_S)
    with _of(path, descriptor, name) as note:
        yield note


def in_use(coordinator: str, name: str, kind: NoteKind = NoteKind.RUN) -> bool:
    """Whether a living process on this computer has the note of a place."""
    path = _path(coordinator, name, kind)
    if not path.exists():
        return False
    descriptor = locked(path)
    if descriptor is None:
        return True
    with _of(path, descriptor, name):
        return False


def job_notes(coordinator: str) -> list[Content]:
    """What the jobs on this computer, living or dead, have noted of this coordinator's places."""
    found: list[Content] = []
    every = place_file(NoteKind.JOB, coordinator, "")
    for path in sorted(every.parent.glob(f"{glob.escape(every.name)}*")):
        try:
            content = _parsed(path.read_bytes())
        except OSError:
            continue  # its job has just ended
        if content is not None:
            found.append(content)
    return found


@contextmanager
def _of(path: Path, descriptor: int, name: str) -> Generator[Note]:
    note = Note(descriptor, name)
    try:
        yield note
    finally:
        if note.left is None or not note.left.acquired:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _path(coordinator: str, name: str, kind: NoteKind) -> Path:
    path = place_file(kind, coordinator, name)
    path.parent.mkdir(exist_ok=True)
    return path


def _held_by_another_run(name: str, path: Path) -> PlaceHeldError:
    try:
        content = _parsed(path.read_bytes())
    except OSError:
        content = None
    which, hint = "", "wait until it ends (--wait 30m), or end it"
    if content is not None:
        pid = content.run or content.pid
        which, hint = f", process {pid} ({content.command[:_SHOWN]})", f"{hint}: kill {pid}"
    return PlaceHeldError(name, f"another run of yours on this computer{which}", hint=hint)


def _parsed(text: bytes) -> Content | None:
    try:
        fields: dict[str, Any] = json.loads(text.partition(b"\n")[0])
        leader = fields.get("leader")
        return Content(
            pid=int(fields["pid"]),
            command=str(fields["command"]),
            acquired=bool(fields["acquired"]),
            before=float(fields["before"]),
            after=float(fields["after"]),
            **{name: str(fields.get(name, "")) for name in ("place", "number", "boot")},
            run=int(fields.get("run", 0)),
            leader=None if leader is None else ProcessRef(int(leader["pid"]), int(leader["start_ticks"])),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
