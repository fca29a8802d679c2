"""The edges of the use case, as Protocols. Fakes of these, and of nothing else, live in `fsjoule.testing`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fsjoule.model import BoardFacts, ImageFacts, Measurement, MeterInfo, Run, Trace


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command on the board left behind; standard error is merged into `stdout` by a serial console."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut of the board's power: what it had printed on its console up to then, and what its disks lost, in words.

    Only a virtual board can tell what its disks lost.
    """

    console: str
    losses: tuple[str, ...]


class Shell(Protocol):
    """Runs programs on the board."""

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        """Run one program to its end, whatever its exit code.

        Raises BoardError when the board does not answer within the time limit.
        """
        ...

    def start(self, argv: Sequence[str]) -> None:
        """Start a program and leave it to itself; `Board.cut` is what comes next, and tells what it has printed."""
        ...

    def put(self, path: str, content: bytes) -> None:
        """Write a small file on the board."""
        ...

    def get(self, path: str) -> bytes:
        """Read a file of the board. Raises LabError if it does not arrive whole."""
        ...


class Board(Protocol):
    """The device under test, with its supply and its card."""

    def prepare(self, kernel: str, root_filesystem: str) -> None:
        """Switch the board off and bring the image with that kernel and root filesystem onto its card.

        That is left out if it is there already and the run has no other. Raises ConfigError if there is no such image,
        LabError if flashing fails.
        """
        ...

    def boot(self, seed: int = 1) -> Shell:
        """Switch the board on and wait for its prompt. Raises BoardError, with the board switched off.

        A board whose boots are all alike takes the random numbers by which they differ from `seed`.
        """
        ...

    def cut(self, after_s: float, seed: int) -> Cut:
        """Cut the power of a booted board after so many seconds, in the midst of what it does; it is off then.

        A board whose disks lose their cache with the power takes what is lost from `seed`. Raises LabError if the power
        cannot be cut.
        """
        ...

    def check_ours(self) -> None:
        """Raise PlaceLostError if the board is not ours any more, LabError if nobody can say whether it is."""
        ...

    def off(self) -> None:
        """Switch the board off, whatever its state. Raises PlaceLostError if it is not ours any more."""
        ...

    def facts(self) -> BoardFacts:
        """What the booted board says of itself."""
        ...

    def image(self) -> ImageFacts:
        """What is on the card."""
        ...


class Flasher(Protocol):
    """Brings a card image onto the board's card while the board is off."""

    def flash(self, image: Path) -> None:
        """Write `image` (with `<image>.bmap` beside it, only its mapped blocks).

        Raises LabError, transient if a second try may work.
        """
        ...


class Meter(Protocol):
    """Joules. Recording goes on in the background from `arm` to `disarm`."""

    def info(self) -> MeterInfo:
        """What the meter says of itself. Raises MeterError if it is silent for 2 s."""
        ...

    def arm(self) -> None:
        """Start recording; returns when the first new sample has arrived.

        Raises MeterError if the meter is silent for 2 s.
        """
        ...

    def disarm(self) -> Trace:
        """Stop recording and return everything since `arm`. Raises MeterError if the meter fell silent."""
        ...


class ResultStore(Protocol):
    """Keeps one run. Everything that `add` returned from survives whatever comes after it."""

    def begin(self, run: Run) -> None: ...

    def update(self, run: Run) -> None:
        """Keep what became known of the run after `begin`."""
        ...

    def add(self, measurement: Measurement, trace: Trace | None, attachments: dict[str, bytes]) -> None: ...

    def finish(self, run: Run) -> None: ...


class Clock(Protocol):
    """Time and sleep of the host."""

    def now_s(self) -> float:
        """Monotonic seconds."""
        ...

    def utc(self) -> str:
        """The time of day, ISO 8601 with seconds and Z."""
        ...

    def sleep(self, seconds: float) -> None: ...
