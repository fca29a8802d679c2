"""What a run and the processes of its boards say to each other. Pickled: both are one program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fsjoule.errors import FsjouleError
from fsjoule.kernels import TakenKernel
from fsjoule.lab import EnvironmentFile
from fsjoule.model import LabFacts, Measurement, Planned, Run, Trace
from fsjoule.runs.request import RunRequest


@dataclass(frozen=True, slots=True)
class Assignment:
    """To a board's process, first: what is measured, and the environment file whose virtual lab it brings up.

    If the environment's tags choose a place, the process takes one.
    """

    request: RunRequest
    environment: EnvironmentFile
    kernels: tuple[TakenKernel, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BootTask:
    """To a board's process: measure these entries of the run, a boot or a block of boots. None ends the process.

    With `helps` it checks crash states of them, which another board measures: it sends a `Claim` and gets a `Share`.
    """

    number: int
    run: Run
    entries: tuple[Planned, ...]
    helps: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """The board can boot; its lab's QEMU, and labgrid's facts about it."""

    emulator: str | None
    lab: LabFacts | None


@dataclass(frozen=True, slots=True)
class Said:
    """A line for the user. Without text: the process is well."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """An entry of the boot has been measured. `run` is what is known by now, without its plan's entries.

    `attempt` rises when the board begins the boot again: its measurements come anew. The run notes the boot's number
    and the place.
    """

    measurement: Measurement
    trace: Trace | None
    attachments: dict[str, bytes]
    run: Run
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """A boot has ended, with what became known of the run in it. `fault` is why entries are missing.

    `kept` are files of the run, by name. `dead`: a part of the board's lab has failed, and it boots no more. The run
    notes `place`, that of a pool, and `boots`: the run's numbers of this board's boots.
    """

    number: int
    run: Run
    kept: tuple[tuple[str, bytes], ...] = ()
    fault: FsjouleError | None = None
    dead: bool = False
    place: str = ""
    boots: Mapping[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True, slots=True)
class Failed:
    """The process ends: its lab does not come up, or there is no place for it."""

    error: FsjouleError


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process ends: an error that nobody expected, with its traceback."""

    traceback: str
