"""The error tree.

::

    FsjouleError              what happened, to what, what to do next
     +- ConfigError           the user's input: file, line, value, what would be right (exit code 2)
     +- InfrastructureError   neither the user's nor the kernel's fault, `transient` or not (exit code 4)
     |   +- HostError         this computer's: a program fails, a limit is reached, an archive is away
     |   |   +- MissingToolError  a program is not installed; names the package (exit code 2)
     |   |   +- StorageError      the disk is full or cannot be written; ends the run
     |   +- LabError          the lab's; `part` is the lab's part that failed
     |       +- BoardError        the board hung, panicked or gave no login; carries the console's last lines
     |       +- MeterError        the meter is silent, unplugged or speaks another version
     |       |   +- InstrumentError another meter measures than the run's, or it has other settings; ends the run
     |       +- ExporterError     no exporter offers a resource of the place
     |       +- PlaceHeldError    somebody else holds the place
     |       +- PlaceLostError    the place was taken away during the run; ends the run
     +- KernelBuildError      a kernel's source does not build (exit code 6)
     +- MeasurementInvalid    measured, but invalid (exit code 5)
     +- ResultError           a run, here or in an object store, is missing, damaged or of another schema (exit code 2)
     +- GitLabError           GitLab cannot be reached, or refuses (exit code 7)
     +- LavaError             a LAVA server cannot be reached, refuses, or has no such job (exit code 7)
     +- ObjectStoreError      an object store cannot be reached, or refuses (exit code 7)
     +- IndexServerError      the server of an index cannot be reached (exit code 7)

No exit code is 1 or 3: those are answers of `fsjoule gate`.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

# Errors of the system for a disk.
DISKS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

_CONSOLE: Final = "\n  console| "
_LINES_BESIDE_A_CAUSE: Final = 3


class FsjouleError(Exception):
    """Root of all errors that fsjoule raises on purpose: `what` happened, to what; `hint` says what to do next."""

    exit_code = 70

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        hint = [f"  hint: {self.hint}"] if self.hint else []
        return "\n".join([self.what, *(f"  {note}" for note in getattr(self, "__notes__", ())), *hint])

    @property
    def in_a_line(self) -> str:
        """For a list of what was left out: `what (hint)`."""
        return f"{self.what} ({self.hint})" if self.hint else self.what

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors of any signature reach another process whole, but for their cause."""
        return _restored, (type(self), self.args, self.__dict__)

    def blame(self, causes: Iterable[str]) -> None:
        """Put these causes in front of the message, unless it names one of them: the others have followed from that."""
        causes = tuple(causes)
        if causes and not any(cause in self.what for cause in causes):
            self.what = f"{'; '.join(causes)}: {self.what}"


def _restored(cls: type[FsjouleError], args: tuple[Any, ...], state: dict[str, Any]) -> FsjouleError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class ConfigError(FsjouleError):
    """The user's input is wrong. The message names file, line, value and the right choices."""

    exit_code = 2

    def __init__(
        self, what: str, *, file: Path | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        place = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(f"{place}{what}", hint=hint)
        self.file = file
        self.line = line

    @classmethod
    def unknown(cls, kind: str, value: str, choices: Iterable[str]) -> ConfigError:
        """An error for an unknown name; it lists the `choices`."""
        return cls(f"unknown {kind} {value!r}", hint=f"choose from: {', '.join(sorted(choices))}")


class Part(StrEnum):
    """A part of a place that can fail. `lab` is a program of a virtual lab; `board` never said a word."""

    POWER = "power"
    CONSOLE = "console"
    FLASHER = "flasher"
    METER = "meter"
    BOARD = "board"
    EXPORTER = "exporter"
    LAB = "lab"


class InfrastructureError(FsjouleError):
    """This computer or the lab failed. A `transient` fault may pass on a second try; others need a person.

    After a fault with `ends_run` the run measures nothing more, because every further entry would fail too.
    `part` is the part of the place that has certainly failed; None if it is this computer, or if a kernel, a card or a
    setting of the user's may be why.
    """

    exit_code = 4
    ends_run = False
    part: Part | None = None

    def __init__(self, what: str, *, transient: bool = False, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.transient = transient


class HostError(InfrastructureError):
    """This computer's fault: a program fails or takes too long, a limit is reached, an archive cannot be reached."""


class LabError(InfrastructureError):
    """The lab's fault."""

    def __init__(
        self, what: str, *, transient: bool = False, hint: str | None = None, part: Part | None = None
    ) -> None:
        super().__init__(what, transient=transient, hint=hint)
        if part is not None:
            self.part = part

    def blame_lab(self, causes: Sequence[str]) -> None:
        """Put dead programs of the lab in front of the message: they are the part that failed."""
        self.blame(causes)
        if causes and self.part is None:
            self.part = Part.LAB


class MissingToolError(HostError):
    """A program is not installed. A second try would not find it either: the user installs it."""

    exit_code = ConfigError.exit_code

    def __init__(self, tool: str, package: str, install: str = "apt-get install") -> None:
        super().__init__(
            f"the program {tool!r} was not found",
            hint=f"install the package {package!r}: {install} {package}",
        )
        self.tool = tool
        self.package = package


class BoardError(LabError):
    """The board did not obey in time. `console_tail` holds the last lines of its console."""

    def __init__(
        self,
        what: str,
        *,
        console_tail: Sequence[str] = (),
        transient: bool = True,
        hint: str | None = None,
        part: Part | None = None,
    ) -> None:
        tail = "".join(f"{_CONSOLE}{line}" for line in console_tail)
        super().__init__(what + tail, transient=transient, hint=hint, part=part)
        self.console_tail = tuple(console_tail)

    def blame_lab(self, causes: Sequence[str]) -> None:
        """As for each LabError. What is on the console is not why then: only its last lines stay."""
        super().blame_lab(causes)
        if causes:
            said, *lines = self.what.split(_CONSOLE)
            self.what = _CONSOLE.join((said, *lines[-_LINES_BESIDE_A_CAUSE:]))


class MeterError(LabError):
    """The meter is silent, unplugged, or speaks an unknown version of the protocol."""

    part = Part.METER


class NoMeterError(MeterError):
    """The environment file has no meter, on purpose."""

    part = None

    def __init__(self) -> None:
        super().__init__("the environment file has no meter")


class InstrumentError(MeterError):
    """A meter other than the run's measures, or the same meter with other settings: its joules are not the run's."""

    ends_run = True
    part = None


class StorageError(HostError):
    """A result could not be stored: the disk is full or cannot be written. Earlier results are whole."""

    ends_run = True


class ExporterError(LabError):
    """No exporter offers a resource (`missing`) of the place."""

    part = Part.EXPORTER

    def __init__(self, place: str, missing: object) -> None:
        super().__init__(
            f"the place {place!r} lacks a resource: no exporter has {missing}",
            transient=True,
            hint="is its exporter running? see: labgrid-client resources",
        )
        self.place = place


class PlaceHeldError(LabError):
    """Somebody else holds or has reserved the labgrid place. `hint` depends on who it is."""

    def __init__(self, place: str, holder: str, *, since: str = "", verb: str = "held by", hint: str) -> None:
        super().__init__(f"the place {place!r} is {verb} {holder}{f' since {since}' if since else ''}", hint=hint)
        self.place = place
        self.holder = holder


class PlaceLostError(LabError):
    """A place that was ours is somebody else's now, and nothing more may be done to its board."""

    ends_run = True

    def __init__(self, place: str, now: str) -> None:
        super().__init__(
            f"the place {place!r} was taken away during the run: {now}",
            hint="the board was left as it is; labgrid-client who shows who has it; --resume goes on when it is free",
        )
        self.place = place
        self.now = now


class KernelBuildError(FsjouleError):
    """A kernel's source does not build. Neither the user nor the lab is at fault; a bisection skips the revision.

    `reason` is the first error in one line.
    """

    exit_code = 6

    def __init__(self, what: str, *, reason: str = "", hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.reason = reason or what.splitlines()[0]


class MeasurementInvalid(FsjouleError):  # noqa: N818 - a finding about a measurement; the design's own word
    """A measurement was taken but is invalid. `reasons` says why."""

    exit_code = 5

    def __init__(self, what: str, reasons: Sequence[str]) -> None:
        super().__init__(f"{what}: {'; '.join(reasons)}")
        self.reasons = tuple(reasons)


class ResultError(FsjouleError):
    exit_code = 2


class GitLabError(FsjouleError):
    exit_code = 7


class LavaError(FsjouleError):
    exit_code = 7


class ObjectStoreError(FsjouleError):
    exit_code = 7


class CollectorError(FsjouleError):
    """A collector of OpenTelemetry's cannot be reached, or refuses."""

    exit_code = 7


class IndexServerError(FsjouleError):
    """The server of an index cannot be reached. Nothing was changed, and it may pass."""

    exit_code = 7
    transient = True


class KernelCIError(FsjouleError):
    """KernelCI, its storage or KCIDB cannot be reached, or refuses. A `transient` fault may pass.

    `denied`: not what was sent is refused, but who sends it.
    """

    exit_code = 7

    def __init__(self, what: str, *, transient: bool = False, denied: bool = False, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.transient = transient
        self.denied = denied


@contextmanager
def also(first: BaseException, doing: str) -> Generator[None]:
    """Clean up after an error: further failures become notes on it, and never replace it."""
    try:
        yield
    except FsjouleError as error:
        first.add_note(f"{doing} failed too: {error.what.splitlines()[0]}")


def not_written(what: str, error: OSError, *, hint: str) -> ConfigError | StorageError:
    """Our error for a file or a folder that cannot be written: its name is the user's, a full disk is not."""
    kind = StorageError if error.errno in DISKS else ConfigError
    return kind(f"{what}: {error.strerror or error}", hint=hint)
