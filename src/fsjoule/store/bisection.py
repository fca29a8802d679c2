"""The log of a bisection: one JSON document per line, appended and flushed, never changed.

The log is all that a bisection keeps; its next step follows from it. A line that was cut short by a crash or a full
disk is dropped when the log is opened again: its boot is measured again, and counted once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from fsjoule.errors import HostError, ResultError, StorageError
from fsjoule.host.cache.locks import locked
from fsjoule.host.files import flush_folder
from fsjoule.host.inside import DOCUMENT_BYTES, read_inside, shown
from fsjoule.host.json_text import json_text
from fsjoule.host.messages import silent
from fsjoule.model.bisection import WantedKernel
from fsjoule.model.metrics import Metric
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.statistics.bisection.question import Purpose
from fsjoule.statistics.evidence import KnownNoise

SCHEMA: Final = "fsjoule.bisection/1"
LOG_FILE: Final = "bisection.jsonl"
_LOCK_FILE: Final = ".lock"
_LOCK_TIMEOUT_S: Final = 1.0
_SOME: Final = 4

Stage = Literal["build", "boot", "work"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The question. The first line of a log; a log answers this question and no other.

    `repository` identifies the repository (`kernels.source_tree.Revision`), `good` and `bad` are commits. `select`
    names the measurements of the suite that count, all without one. `figures` are `<measurement> <metric>`, `effects`
    the least losses that matter by metric, as fractions. `noise` is
    that of earlier boots, by figure. `config` are the texts of kernel configuration fragments. `seeded` says that boots
    of all kernels with one seed share their chance, as they do in guest time.
    """

    made_utc: str
    repository: str
    good: tuple[str, ...]
    bad: tuple[str, ...]
    board: str
    suite: str
    filesystems: tuple[str, ...]
    provision: str
    storages: tuple[str, ...] | None
    select: str
    figures: tuple[str, ...]
    effects: dict[Metric, float]
    budget: int
    seed: int
    simulated: bool
    noise: dict[str, KnownNoise] = field(default_factory=dict[str, KnownNoise])
    config: tuple[str, ...] = ()
    seeded: bool = False
    schema: Literal["fsjoule.bisection/1"] = SCHEMA
    event: Literal["asked"] = "asked"

    def differences(self, other: Asked) -> tuple[str, ...]:
        """The differences of another question, in words; the budget, the seed and the figures' order may differ."""
        names = ("repository", "good", "bad", "board", "suite", "filesystems", "provision", "storages", "select")
        differences = [
            f"{name}: {_shown(getattr(self, name))}, not {_shown(getattr(other, name))}"
            for name in (*names, "effects")
            if getattr(self, name) != getattr(other, name)
        ]
        for name in ("figures", "config"):
            ours, theirs = _parts(getattr(self, name)), _parts(getattr(other, name))
            if ours != theirs:
                only = (f"{_shown(sorted(one - two)[:_SOME])}" for one, two in ((ours, theirs), (theirs, ours)))
                differences.append(f"{name}: {', not '.join(only)}")
        return tuple(differences)


@dataclass(frozen=True, slots=True)
class CommitLine:
    """The commits that are searched from now on, oldest first; the first is an end that is good.

    A commit may be one that was made for this: `adds` are the user's commits that the steps add, `subjects` the first
    lines of their messages. `inside` is the merge whose commits these are, empty for the first line. A `scanned` line
    ends with a commit that is worse than both equal ends of the line before.
    """

    commits: tuple[str, ...]
    adds: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    inside: str = ""
    scanned: bool = False
    event: Literal["line"] = "line"


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel of a commit. Commits whose `image` is equal have the same kernel, byte for byte."""

    kernel: WantedKernel
    image: str
    seconds: float
    event: Literal["built"] = "built"


@dataclass(frozen=True, slots=True)
class Pools:
    """Which commits of the line have the same kernel: the number of each one's pool, rising from 0."""

    numbers: tuple[int, ...]
    event: Literal["pools"] = "pools"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A commit that cannot be tested: at which stage, and why. A fault of the lab is no such reason."""

    kernel: WantedKernel
    stage: Stage
    why: str
    event: Literal["skipped"] = "skipped"


@dataclass(frozen=True, slots=True)
class MeasuredBoot:
    """A boot and its figures by `<measurement> <metric>`, in the metric's unit; None where one is lacking.

    `number` counts all boots of the bisection from 1; `purpose` is the step's that asked for it. `steps` are the shares
    by which a clock may have rounded figures, where one did.
    """

    number: int
    kernel: WantedKernel
    purpose: Purpose
    board: str
    run_id: str
    folder: str
    started_utc: str
    seconds: float
    seed: int
    figures: dict[str, float | None]
    steps: dict[str, float] = field(default_factory=dict[str, float])
    event: Literal["booted"] = "booted"


@dataclass(frozen=True, slots=True)
class Waited:
    """How long the board waited for a build, in seconds."""

    seconds: float
    event: Literal["waited"] = "waited"


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer in a line. What it rests on follows from the lines above."""

    made_utc: str
    kind: AnswerKind
    text: str
    event: Literal["answered"] = "answered"


@dataclass(frozen=True, slots=True)
class Profiled:
    """A boot with a profile, after an answer, so that its loss can be explained. No figure of it counts."""

    kernel: WantedKernel
    run_id: str
    folder: str
    seconds: float
    seed: int
    event: Literal["profiled"] = "profiled"


@dataclass(frozen=True, slots=True)
class Budget:
    """A larger budget than the question's: boots at most from now on."""

    boots: int
    event: Literal["budget"] = "budget"


@dataclass(frozen=True, slots=True)
class RecordedBoot:
    """A boot of an earlier run: its number in the run; figures and their steps by `<measurement> <metric>`.

    Boots of one run and one repetition have one seed.
    """

    run_id: str
    boot: int
    started_utc: str
    figures: dict[str, float | None]
    steps: dict[str, float] = field(default_factory=dict[str, float])
    repetition: int = 1


@dataclass(frozen=True, slots=True)
class Recorded:
    """The index's runs of a kernel; `mismatches` say which runs of it do not count, and why."""

    image: str
    boots: tuple[RecordedBoot, ...]
    mismatches: tuple[str, ...] = ()
    event: Literal["recorded"] = "recorded"


@dataclass(frozen=True, slots=True)
class Scan:
    """Look at these positions of the line, too, whose ends are equal."""

    positions: tuple[int, ...]
    event: Literal["scan"] = "scan"


Event = (
    Asked
    | CommitLine
    | Built
    | Pools
    | Skipped
    | MeasuredBoot
    | Waited
    | Answered
    | Profiled
    | Budget
    | Scan
    | Recorded
)
_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


@dataclass
class BisectionLog:
    """A log that is being written. `events` are all that it holds."""

    folder: Path
    events: list[Event] = field(default_factory=list[Event])

    def add(self, event: Event) -> None:
        """Append an event; it is on the disk when this returns. Raises StorageError."""
        path = self.folder / LOG_FILE
        line = json_text(_EVENT, event)
        try:
            with path.open("ab") as file:
                whole = file.tell()
                try:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    with suppress(OSError):
                        file.truncate(whole)
                    raise
        except OSError as error:
            raise StorageError(
                f"{path} cannot be written: {error.strerror}",
                hint="make room on that disk and run the same command again: it goes on where it was",
            ) from error
        self.events.append(event)


@contextmanager
def bisection_log(folder: Path) -> Generator[BisectionLog]:
    """The log in a folder, to go on with; made if it is not there. One process at a time has it.

    Raises ResultError if it is damaged, HostError if another process has it, StorageError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        flush_folder(folder.parent)
    except OSError as error:
        raise StorageError(f"{folder} cannot be made: {error.strerror}", hint="choose another --state") from error
    try:
        holding = locked(folder / _LOCK_FILE, f"the bisection in {folder}", _LOCK_TIMEOUT_S)
        with silent():
            holding.__enter__()
    except HostError as error:
        raise HostError(
            f"another process works on the bisection in {folder}", hint="wait for it, or choose another --state"
        ) from error
    try:
        events, whole = _read(folder)
        path = folder / LOG_FILE
        if path.exists() and path.stat().st_size > whole:
            os.truncate(path, whole)
        yield BisectionLog(folder, events)
    finally:
        holding.__exit__(None, None, None)


def read_bisection(folder: Path) -> list[Event]:
    """The events of a log, which may be growing. Raises ResultError if there is none, or it is damaged."""
    events, _ = _read(folder)
    if not events:
        raise ResultError(f"{shown(folder)} holds no bisection", hint="fsjoule bisect --state DIR makes one")
    return events


def _read(folder: Path) -> tuple[list[Event], int]:
    """The events, and how many bytes of the log are whole lines."""
    content = read_inside(folder, LOG_FILE, at_most=DOCUMENT_BYTES) or b""
    whole = content.rfind(b"\n") + 1
    events: list[Event] = []
    for number, line in enumerate(content[:whole].splitlines(), start=1):
        try:
            events.append(_EVENT.validate_json(line))
        except ValidationError as error:
            first: Any = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ResultError(
                f"{shown(folder, LOG_FILE)}, line {number}: {f'{place}: ' if place else ''}{first['msg']}",
                hint="it was written by another version, or changed by hand: begin anew with another --state",
            ) from error
    if events and not isinstance(events[0], Asked):
        raise ResultError(f"{shown(folder, LOG_FILE)}: its first line is no question")
    return events, whole


def _parts(texts: tuple[str, ...]) -> set[str]:
    """The lines of figures, or of a configuration's fragments, in whatever order."""
    return {line for text in texts for line in text.splitlines() if line.strip()}


def _shown(value: object) -> str:
    return json.dumps(value, default=str)
