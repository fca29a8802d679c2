"""A job's shell on this worker: which processes it and its guard are, for the helpers that LAVA calls beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host.paths import state_dir
from fsjoule.host.process_ref import ProcessRef, wait_gone

# A guard ends a bench within this time, and then needs the lab to switch the board off.
ENDED_S: Final = 45.0
_LAB_S: Final = 45.0


@dataclass(frozen=True, slots=True)
class ShellRecord:
    """The shell's session, by its first process, and its guard."""

    shell: ProcessRef
    guard: ProcessRef

    @staticmethod
    def path(place: str) -> Path:
        folder = state_dir() / "lava"
        folder.mkdir(exist_ok=True)
        return folder / f"{place.replace('/', '_')}.json"

    @classmethod
    def read(cls, place: str) -> ShellRecord | None:
        try:
            found = json.loads(cls.path(place).read_bytes())
            return cls(ProcessRef(**found["shell"]), ProcessRef(**found["guard"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, place: str) -> None:
        self.path(place).write_text(json.dumps(asdict(self)))


def await_guard(place: str) -> None:
    """Wait until the guard of an earlier job's shell has switched the board off. Raises LabError if it does not."""
    record = ShellRecord.read(place)
    if record is None or record.shell.alive():
        return
    if wait_gone([record.guard], ENDED_S + _LAB_S):
        raise LabError(f"an earlier job is still being ended: process {record.guard.pid}", transient=True)


def check_no_shell(place: str) -> None:
    """Raise LabError if a job has its shell on this place."""
    record = ShellRecord.read(place)
    if record is not None and record.shell.alive():
        raise LabError(
            f"another job has its shell for the place {place!r}: process {record.shell.pid}",
            hint="LAVA gives a device to one job at a time: is this place a second device?",
        )
