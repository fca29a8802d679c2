"""The edges of the use case, as Protocols. `fsjoule.testing` has fakes of these and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fsjoule.errors import Part
from fsjoule.model import BoardFacts, ImageFacts, Measurement, MeterInfo, Profile, Run, Trace
from fsjoule.model.bisection import BuiltKernel, KernelBoot, NoKernel, WantedKernel
from fsjoule.model.power_on import PowerOn


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run on the board, and the seconds that it may take."""

    argv: tuple[str, ...]
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command on the board; a serial console merges standard error into `stdout`."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut of the board's power: the console's output until then, and a virtual board's losses in words."""

    console: str
    losses: tuple[str, ...]


class Programs(Protocol):
    """Runs programs on the board, and no more."""

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        """Run one program to its end, whatever its exit code. Raises BoardError after the time limit."""
        ...

    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        """Run programs one after the other until one fails, at the cost of about one. Returns the results of those run.

        Raises BoardError after a time limit.
        """
        ...


def one_by_one(programs: Programs, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
    """`Programs.run_all` where a command costs little."""
    results: list[CommandResult] = []
    for command in commands:
        results.append(programs.run(command.argv, timeout_s=command.timeout_s))
        if results[-1].exit_code != 0:
            break
    return tuple(results)


class Shell(Programs, Protocol):
    """Runs programs on the board, and moves small files."""

    def start(self, argv: Sequence[str]) -> None:
        """Start a program and leave it running; only `Board.cut` may follow, and returns the program's output."""
        ...

    def put(self, path: str, content: bytes) -> None:
        """Write a small file on the board."""
        ...

    def get(self, path: str) -> bytes:
        """Read a file of the board. Raises LabError if it arrives incomplete."""
        ...

    def get_all(self, paths: Sequence[str]) -> tuple[bytes, ...]:
        """Read small files at the cost of about one; a missing one is empty. Raises LabError as `get` does."""
        ...


class Board(Protocol):
    """The device under test, with its supply and its card."""

    def prepare(self, kernel: str, root_filesystem: str) -> None:
        """Switch the board off and bring the image with that kernel and root filesystem onto its card.

        Flashing is left out if the image is there already and the run has no other. Raises ConfigError if there is no
        such image, LabError if flashing fails.
        """
        ...

    def boot(self, seed: int = 1) -> Shell:
        """Switch the board on and wait for its prompt. Raises BoardError, with the board switched off.

        A deterministic board makes its boots differ by random numbers from `seed`.
        """
        ...

    def cut(self, after_s: float, seed: int) -> Cut:
        """Cut the power of a booted board after so many seconds, in the midst of its work; it is off then.

        If the board's disks lose their cache with the power, `seed` decides which writes. Raises LabError if the power
        cannot be cut.
        """
        ...

    def check_ours(self) -> None:
        """Raise PlaceLostError if the board is not ours any more, LabError if that cannot be found out."""
        ...

    def card_file(self) -> Path | None:
        """The file of this computer that is the card of a board in guest time while it is on; None for other boards."""
        ...

    def card_image(self) -> Path:
        """The file that was written onto the card, packed or not. Raises ConfigError if none was."""
        ...

    def put_card(self, content: Path) -> None:
        """Switch the board off and write a card's whole content onto its card. `prepare` writes an image anew.

        Raises LabError.
        """
        ...

    def since_power_on(self) -> PowerOn:
        """What the console has said since power-on, with times, once for each boot. Raises LabError."""
        ...

    def record_writes(self) -> Path | None:
        """Record what the board writes to its card, from its next power-on to its end.

        Returns the file of the writes so far, which `model/card_writes.py` reads; None if this board's lab does not see
        them. Raises LabError if it cannot record them.
        """
        ...

    def off(self) -> None:
        """Switch the board off, whatever its state. Raises PlaceLostError if it is not ours any more."""
        ...

    def facts(self) -> BoardFacts:
        """The booted board's description of itself."""
        ...

    def image(self) -> ImageFacts:
        """The image on the card."""
        ...


class BoardParts(Protocol):
    """The parts around a board, one by one, for the examination of its place."""

    @property
    def boot_limit_s(self) -> float:
        """Seconds that a boot may take."""
        ...

    def power_on(self) -> None:
        """Switch the board on, and do not wait for it. Raises LabError, PlaceLostError."""
        ...

    def has_power(self) -> bool | None:
        """Whether the outlet is on; None if it never tells. Raises LabError if it does not tell now."""
        ...

    def reach_card(self) -> str:
        """Reach the card for writing, write nothing, and leave the board off.

        Returns what was found; empty if the flasher has nothing to reach. Raises LabError, PlaceLostError.
        """
        ...


class Meter(Protocol):
    """Joules. Recording goes on in the background from `arm` to `disarm`."""

    def info(self) -> MeterInfo:
        """The meter's description of itself. Raises MeterError if it is silent for 2 s."""
        ...

    def arm(self) -> None:
        """Start recording; returns at the first new sample. Raises MeterError if the meter is silent for 2 s."""
        ...

    def disarm(self) -> Trace:
        """Stop recording and return everything since `arm`. Raises MeterError if the meter fell silent."""
        ...


class LabHealth(Protocol):
    """Knows which parts of the lab have failed, as the cause of an error or before one shows."""

    def faults(self, part: Part | None = None) -> tuple[str, ...]:
        """What the board needs and its lab has lost, in words; empty if it has all.

        With POWER or METER only what keeps the outlet from switching, or the meter silent.
        """
        ...


class Profiler(Protocol):
    """Counts what a board executes, by address, without any effect on it. Only a board in guest time can be counted."""

    def count_next(self) -> None:
        """Count from the board's next power-on to the end of that. Raises LabError if its lab cannot."""
        ...

    def take(self, window: str) -> Profile | None:
        """The instructions executed in the window of this name, once; None if the board did not finish one.

        Raises LabError if the lab does not give it.
        """
        ...


class ResultStore(Protocol):
    """Keeps one run. A measurement survives anything once `add` has returned."""

    def begin(self, run: Run) -> None: ...

    def update(self, run: Run) -> None:
        """Keep facts of the run that became known after `begin`."""
        ...

    def add(self, measurement: Measurement, trace: Trace | None, attachments: dict[str, bytes]) -> None: ...

    def withdraw(self, numbers: Collection[int]) -> None:
        """Remove these measurements: their boot is measured again."""
        ...

    def keep(self, name: str, content: bytes) -> None:
        """Keep a file of the run beside its measurements."""
        ...

    def take(self, name: str) -> bytes | None:
        """The content of a kept file, also of a run that goes on, which is removed; None without one."""
        ...

    def finish(self, run: Run) -> None: ...


class Clock(Protocol):
    """Time, sleep and load of the host."""

    def now_s(self) -> float:
        """Monotonic seconds."""
        ...

    def utc(self) -> str:
        """The time of day in UTC, ISO 8601 with seconds and Z."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def load(self) -> tuple[float, int]:
        """The load average of the last minute, and the number of processor cores."""
        ...


class KernelBuilds(Protocol):
    """Builds the kernels of commits."""

    def expect(self, wanted: Sequence[WantedKernel]) -> None:
        """Build these meanwhile, in this order, instead of what was expected before."""
        ...

    def built(self, wanted: WantedKernel) -> BuiltKernel | None:
        """The kernel, if it is built already."""
        ...

    def take(self, wanted: WantedKernel) -> BuiltKernel | NoKernel:
        """The kernel, when it is built. Raises LabError if this machine cannot build it."""
        ...

    def pools(self, commits: Sequence[str]) -> tuple[int, ...]:
        """The number of each commit's pool, rising along the line. Commits of one pool have the same kernel."""
        ...


MadeAhead = Callable[[Path, int], KernelBoot | None]
"""The boot of a kernel with a seed, if it was made though nobody has asked for it yet, and its kernel does its work."""

LikelyBoots = Callable[[MadeAhead], Iterable[tuple[Path, int]]]
"""The boots that will probably be asked for, as kernels and seeds, the most urgent first. Called for a free board."""


class KernelBoots(Protocol):
    """Boots kernels on a board and measures."""

    def measure(self, kernel: Path, seed: int, *, profiled: bool = False) -> KernelBoot:
        """Boot the kernel in a build folder and measure; `seed` gives the order and all random choices.

        With `profiled` each measurement keeps a profile.

        Raises LabError if the lab does not do its part.
        """
        ...

    def expect(self, likely: LikelyBoots) -> None:
        """Make boots meanwhile if boards are free: `likely` tells which, instead of what was expected before."""
        ...

    def give_up(self, why: str) -> bool:
        """Put the present board aside, which does not work; whether there is another one of its kind."""
        ...
