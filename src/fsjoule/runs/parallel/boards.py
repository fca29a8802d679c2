"""The boots of a plan among boards: the next one goes to a board that is free."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fsjoule.bench.faults import fault_of
from fsjoule.errors import FsjouleError
from fsjoule.host import interrupts
from fsjoule.host.clock import HostClock
from fsjoule.model import LabFacts, Planned, Run
from fsjoule.runs.parallel.messages import Assignment, Boot, Done, Ready
from fsjoule.runs.parallel.processes import Processes
from fsjoule.runs.virtual import check_room
from fsjoule.suites import Rates, estimate

# A boot whose board fails gets another one, once. A kernel at fault fails there too.
_TRIES: Final = 2
_WORKER: Final = "fsjoule.runs.parallel.worker"


@dataclass
class _Board:
    ready: Ready | None = None
    boot: int | None = None
    began_utc: str = ""
    began_s: float = 0.0
    faults: int = 0


@dataclass
class Boards:
    """The boards of a run. Call `begin`, `boot` for each boot in the order of the plan, and `end`."""

    processes: Processes
    boards: dict[int, _Board]
    _run: Run | None = None
    _clock: HostClock = field(default_factory=HostClock)
    _boots: Sequence[tuple[Planned, ...]] = ()
    _queue: list[int] = field(default_factory=list[int])
    _tries: dict[int, int] = field(default_factory=dict[int, int])
    _faults: dict[int, list[Done]] = field(default_factory=dict[int, list[Done]])
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
        """Wait until all labs are up. Boards without one are left out. Raises the first error if none comes up."""
        while any(self.boards[number].ready is None for number in self.processes.left):
            self._listen()
        if not self.processes.left:
            raise self._errors[0]

    def begin(self, run: Run, boots: Sequence[tuple[Planned, ...]]) -> None:
        """Start with the boots of the run."""
        self._run, self._boots, self._queue = run, boots, list(range(len(boots)))
        self._assign()

    def boot(self, number: int) -> tuple[Done, tuple[Done, ...]]:
        """A boot when it is done, and the tries before it that failed. Raises LabError if no board is left."""
        while number not in self._done:
            if not self.processes.left:
                raise self._errors[-1]
            self._listen()
        return self._done[number], tuple(self._faults.get(number, ()))

    def end(self) -> None:
        """End all boards: they are off and their labs are down, or their processes are killed after a time."""
        self.processes.end([number for number, each in self.boards.items() if each.boot is not None or not each.ready])

    def _listen(self) -> None:
        self.processes.listen(self._hear, self._lose)
        self._assign()

    def _hear(self, number: int, message: Any) -> None:  # noqa: ANN401 - whatever a process sends
        match message:
            case Ready():
                self.boards[number].ready = message
                self.processes.say(f"board {number} is ready")
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
        if done.fault is None or not self._again(done):
            self._done[done.number] = done
        if done.fault is not None and (
            getattr(done.fault, "ends_run", False) or (board.faults >= _TRIES and len(self.processes.left) > 1)
        ):
            self._lose(number, done.fault)

    def _again(self, done: Done) -> bool:
        """Whether another board tries the boot."""
        tries = self._tries[done.number] = self._tries.get(done.number, 0) + 1
        if tries >= _TRIES:
            return False
        self._faults.setdefault(done.number, []).append(done)
        heapq.heappush(self._queue, done.number)
        return True

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
            if not self._again(lost):
                self._done[lost.number] = lost

    def _assign(self) -> None:
        if self._run is None:
            return
        for number in self.processes.left:
            board = self.boards[number]
            if board.boot is None and board.ready is not None and self._queue:
                board.boot, board.began_utc = heapq.heappop(self._queue), self._clock.utc()
                board.began_s = time.monotonic()
                self.processes.send(number, Boot(board.boot, self._run, self._boots[board.boot]))


def lab_of_board(name: str, number: int) -> str:
    """The virtual lab of a board: the first has the environment file's, the others NAME-2, NAME-3 and so on."""
    return name if number == 1 else f"{name}-{number}"


@contextmanager
def started_boards(assignment: Assignment, say: Callable[[str], None], *, worker: str = _WORKER) -> Generator[Boards]:
    """As many boards as the choice asks for, each in a virtual lab of its own; they end with the body.

    `worker` is the module of a board's process. Raises as `Boards.open`.
    """
    name, numbers = assignment.environment.virtual_lab, range(1, assignment.choice.boards + 1)
    assert name is not None, "the choice was checked"
    check_room(assignment.environment, len(numbers), say)
    boards = Boards(Processes(say), {number: _Board() for number in numbers})
    with ExitStack() as closing:
        closing.callback(boards.end)
        for number in numbers:
            boards.processes.start(worker, lab_of_board(name, number), assignment)
        with interrupts.interruptible():
            boards.open()
        yield boards
