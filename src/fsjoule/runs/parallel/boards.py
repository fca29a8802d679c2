"""The boots of a plan among boards: the next one goes to a board that is free.

A boot that fails goes to a board that has not tried it yet. A board that is known to be dead costs no boot a try.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fsjoule import lab
from fsjoule.bench.faults import fault_of
from fsjoule.errors import FsjouleError, LabError
from fsjoule.host import interrupts
from fsjoule.host.clock import HostClock
from fsjoule.model import Fault, LabFacts, Planned, Run
from fsjoule.runs.parallel.messages import Assignment, Boot, Done, Ready
from fsjoule.runs.parallel.processes import Processes
from fsjoule.runs.virtual import check_room
from fsjoule.suites import Rates, estimate

# A boot that fails on so many boards fails for good: its kernel may be why. A board fails so often in a row, too.
_TRIES: Final = 2
_WORKER: Final = "fsjoule.runs.parallel.worker"


class NoBoardError(LabError):
    """All boards of the run have failed, the last one with this error."""

    ends_run = True

    def __init__(self, last: FsjouleError) -> None:
        super().__init__(f"no board is left: {last.what}", hint=last.hint)


@dataclass
class _Board:
    ready: Ready | None = None
    boot: int | None = None
    began_utc: str = ""
    began_s: float = 0.0
    faults: int = 0

    @property
    def place(self) -> str:
        return self.ready.lab.place if self.ready is not None and self.ready.lab is not None else ""


@dataclass
class Boards:
    """The boards of a run. Call `begin`, `boot` for each boot in the order of the plan, and `end`.

    `pool`: they are places of one lab, and faults name them.
    """

    processes: Processes
    boards: dict[int, _Board]
    pool: bool = False
    _run: Run | None = None
    _clock: HostClock = field(default_factory=HostClock)
    _boots: Sequence[tuple[Planned, ...]] = ()
    _queue: list[int] = field(default_factory=list[int])
    _faults: dict[int, dict[int, Done]] = field(default_factory=dict[int, dict[int, Done]])  # by boot and board
    _done: dict[int, Done] = field(default_factory=dict[int, Done])
    _errors: list[FsjouleError] = field(default_factory=list[FsjouleError])
    _took_s: float = 0.0
    _guessed_s: float = 0.0

    @property
    def left_s(self) -> float | None:
        """The seconds until all boots are done, about; None before the first one is, 0 after the last."""
        working = [self.boards[n] for n in self.processes.left if self.boards[n].boot is not None]
        if not self._guessed_s or not self.processes.left:
            return None
        now_s = time.monotonic()
        of_working = [max(0.0, self._expected_s(each.boot) - now_s + each.began_s) for each in working]
        together_s = sum(of_working) + sum(map(self._expected_s, self._queue))
        return max(together_s / len(self.processes.left), *of_working, 0.0)

    def _expected_s(self, number: int | None) -> float:
        """The seconds that a boot takes, as far as the guesses for earlier ones were off."""
        return 0.0 if number is None else self._guess_s(number) * self._took_s / self._guessed_s

    def _guess_s(self, number: int) -> float:
        return estimate(self._boots[number], Rates()).seconds

    @property
    def emulator(self) -> str | None:
        return self._first.emulator

    @property
    def lab(self) -> LabFacts | None:
        """The lab of the first board."""
        return self._first.lab

    @property
    def _first(self) -> Ready:
        return next(each.ready for each in self.boards.values() if each.ready is not None)

    def open(self) -> None:
        """Wait until one board can boot; others follow. Boards without a lab or a place are left out.

        Raises the first error if there is no board.
        """
        while self.processes.left and all(self.boards[number].ready is None for number in self.processes.left):
            self._listen()
        if not self.processes.left:
            raise self._errors[0]

    def begin(self, run: Run, boots: Sequence[tuple[Planned, ...]]) -> None:
        """Start with the boots of the run."""
        self._run, self._boots, self._queue = run, boots, list(range(len(boots)))
        self._assign()

    def boot(self, number: int) -> tuple[Done, tuple[Done, ...]]:
        """A boot when it is done, and the tries before it that failed. Raises NoBoardError if no board is left."""
        while number not in self._done:
            if not self.processes.left:
                raise NoBoardError(self._errors[-1])
            self._listen()
        done = self._done[number]
        return done, tuple(each for each in self._faults.get(number, {}).values() if each is not done)

    def end(self) -> None:
        """End all boards: they are off, and their labs are down or their places free.

        Processes are killed after a time, and then their places are released.
        """
        self.processes.end([number for number, each in self.boards.items() if each.boot is not None or not each.ready])
        places = [self.boards[number].place for number in self.boards if self.processes.was_killed(number)]
        self.boards = {}
        for place in filter(None, places if self.pool else ()):
            lab.release_left(place, self.processes.say)

    def _listen(self) -> None:
        self.processes.listen(self._hear, self._lose)
        self._assign()

    def _hear(self, number: int, message: Any) -> None:  # noqa: ANN401 - whatever a process sends
        match message:
            case Ready():
                self.boards[number].ready = message
                where = f", place {self.boards[number].place}" if self.pool else ""
                self.processes.say(f"board {number} is ready{where}")
            case Done():
                self._take(number, message)
            case _:
                raise TypeError(f"board {number} sent {message!r}")

    def _take(self, number: int, done: Done) -> None:
        board = self.boards[number]
        board.boot = None
        if done.fault is None:
            self._took_s += time.monotonic() - board.began_s
            self._guessed_s += self._guess_s(done.number)
        board.faults = 0 if done.fault is None else board.faults + 1
        if done.fault is None:
            self._done[done.number] = done
            return
        self._fail(number, done)
        hopeless = board.faults >= _TRIES and len(self.processes.left) > 1
        if done.dead or hopeless or getattr(done.fault, "ends_run", False):
            self._lose(number, done.fault)

    def _fail(self, number: int, done: Done) -> None:
        """Let another board try a boot that has failed on this one."""
        place = self.boards[number].place
        if self.pool and place:
            done = replace(done, run=replace(done.run, faults=tuple(_at(place, each) for each in done.run.faults)))
        self._faults.setdefault(done.number, {})[number] = done
        bisect.insort(self._queue, done.number)

    def _lose(self, number: int, error: FsjouleError) -> None:
        self._errors.append(error)
        self.processes.leave_out(number, error)
        board = self.boards[number]
        if board.boot is not None:
            assert self._run is not None
            times = {"started_utc": board.began_utc, "ended_utc": self._clock.utc()}
            fault = fault_of(error, self._boots[board.boot][0], **times, steps=())
            lost = Done(board.boot, replace(self._run, faults=(fault,)), boots=0, fault=error)
            board.boot = None
            self._fail(number, lost)

    def _give_up(self) -> None:
        """End boots that have failed on two of the boards that are left, or on all of them."""
        left = self.processes.left
        for boot in [each for each in self._queue if each in self._faults]:
            failed = self._faults[boot]
            if len(failed.keys() & set(left)) >= min(_TRIES, len(left)):
                self._queue.remove(boot)
                self._done[boot] = max(failed.values(), key=lambda done: len(done.stored))

    def _assign(self) -> None:
        if self._run is None:
            return
        self._give_up()
        for number in self.processes.left:
            board = self.boards[number]
            boot = next((each for each in self._queue if number not in self._faults.get(each, {})), None)
            if board.boot is None and board.ready is not None and boot is not None:
                self._queue.remove(boot)
                board.boot, board.began_utc = boot, self._clock.utc()
                board.began_s = time.monotonic()
                self.processes.send(number, Boot(board.boot, self._run, self._boots[board.boot]))


def _at(place: str, fault: Fault) -> Fault:
    """The fault with the place and the time in front: a run on several boards has many."""
    clock = fault.ended_utc.partition("T")[2].removesuffix("Z")
    return replace(fault, what=f"place {place} at {clock} UTC: {fault.what}")


def lab_of_board(name: str, number: int) -> str:
    """The virtual lab of a board: the first has the environment file's, the others NAME-2, NAME-3 and so on."""
    return name if number == 1 else f"{name}-{number}"


@contextmanager
def started_boards(assignment: Assignment, say: Callable[[str], None], *, worker: str = _WORKER) -> Generator[Boards]:
    """As many boards as the choice asks for; they end with the body.

    Each is in a virtual lab of its own, or has a place of the pool that the environment's tags choose. `worker` is the
    module of a board's process. Raises as `Boards.open`.
    """
    environment, numbers = assignment.environment, range(1, assignment.choice.boards + 1)
    pool = bool(environment.wanted.tags)
    if not pool:
        check_room(environment, len(numbers), say)
    boards = Boards(Processes(say), {number: _Board() for number in numbers}, pool)
    with ExitStack() as closing:
        closing.callback(boards.end)
        for number in numbers:
            name = "" if pool else lab_of_board(environment.virtual_lab or "", number)
            boards.processes.start(worker, name, assignment)
        with interrupts.interruptible():
            boards.open()
        yield boards
