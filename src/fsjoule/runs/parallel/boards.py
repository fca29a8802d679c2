"""A process for each board, and the boots among them: the next boot of the plan goes to a board that is free."""

from __future__ import annotations

import heapq
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from subprocess import Popen
from typing import IO, Any, Final

from fsjoule.bench.faults import fault_of
from fsjoule.errors import FsjouleError, LabError
from fsjoule.host import interrupts, process
from fsjoule.host.clock import HostClock
from fsjoule.model import LabFacts, Planned, Run
from fsjoule.runs.parallel.messages import Assignment, Boot, Done, Failed, Message, Ready, Said

# A boot whose board fails gets another one, once. A kernel at fault fails there too.
_TRIES: Final = 2
_LOOK_S: Final = 1.0
# A process says every ten seconds that it is well, a stopped or starved one does not.
_SILENT_S: Final = 300.0
# A board is switched off, its place is released and its lab goes down.
_END_S: Final = 120.0
_STOP_S: Final = 10.0
_AGAIN_S: Final = 10.0
_TAIL_BYTES: Final = 4000


class BoardProcessError(RuntimeError):
    """A bug in the process of a board, with its traceback."""


@dataclass
class _Worker:
    number: int
    process: Popen[bytes]
    connection: Connection[Any, Message]
    log: IO[bytes]
    heard_s: float
    ready: Ready | None = None
    boot: int | None = None
    began_utc: str = ""
    over: bool = False
    faults: int = 0

    def last_words(self) -> str:
        self.log.seek(max(0, self.log.seek(0, 2) - _TAIL_BYTES))
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


@dataclass
class Boards:
    """The boards of a run. Call `begin`, `boot` for each boot in the order of the plan, and `end`."""

    say: Callable[[str], None]
    workers: list[_Worker] = field(default_factory=list[_Worker])
    _run: Run | None = None
    _clock: HostClock = field(default_factory=HostClock)
    _boots: Sequence[tuple[Planned, ...]] = ()
    _queue: list[int] = field(default_factory=list[int])
    _tries: dict[int, int] = field(default_factory=dict[int, int])
    _faults: dict[int, list[Done]] = field(default_factory=dict[int, list[Done]])
    _done: dict[int, Done] = field(default_factory=dict[int, Done])
    _ended: bool = False
    _errors: list[FsjouleError] = field(default_factory=list[FsjouleError])

    @property
    def emulator(self) -> str | None:
        return self._first.emulator

    @property
    def lab(self) -> LabFacts | None:
        """The lab of the first board."""
        return self._first.lab

    @property
    def _first(self) -> Ready:
        return next(each.ready for each in self.workers if each.ready is not None)

    @property
    def _left(self) -> list[_Worker]:
        return [each for each in self.workers if not each.over]

    def open(self) -> None:
        """Wait until all labs are up. Boards without one are left out. Raises the first error if none comes up."""
        while any(each.ready is None for each in self._left):
            self._listen()
        if not self._left:
            raise self._errors[0]

    def begin(self, run: Run, boots: Sequence[tuple[Planned, ...]]) -> None:
        """Start with the boots of the run."""
        self._run, self._boots, self._queue = run, boots, list(range(len(boots)))
        self._assign()

    def boot(self, number: int) -> tuple[Done, tuple[Done, ...]]:
        """A boot when it is done, and the tries before it that failed. Raises LabError if no board is left."""
        while number not in self._done:
            if not self._left:
                raise self._errors[-1]
            self._listen()
        return self._done[number], tuple(self._faults.get(number, ()))

    def end(self) -> None:
        """End all boards: they are off and their labs are down, or their processes are killed after a time."""
        if self._ended:
            return
        self._ended = True
        busy = [each.process for each in self._left if each.boot is not None or each.ready is None]
        for each in self._left:
            if each.process not in busy:
                with suppress(OSError):  # it has just ended
                    each.connection.send(None)
        self._drain(busy)
        for each in self.workers:
            if each.process.poll() is None:
                self.say(f"board {each.number}: its process does not end and is killed")
            process.stop(each.process, timeout_s=_STOP_S)
            each.over = True
            each.connection.close()
            each.log.close()

    def _drain(self, busy: Sequence[Popen[bytes]]) -> None:
        """Wait for the end of all processes. Their messages are read, for they could not end while they are not.

        Those that are `busy` are interrupted. They notice a signal just before a long wait only after that wait, so it
        is sent again.
        """
        deadline, again_s = time.monotonic() + _END_S, 0.0
        speaking = [each.connection for each in self.workers if not each.over]
        while any(each.process.poll() is None for each in self.workers) and (now_s := time.monotonic()) < deadline:
            if now_s >= again_s:
                for each in busy:
                    each.terminate()  # not its group: programs that write the card are ended by the lab
                again_s = now_s + _AGAIN_S
            ready = wait(speaking, _LOOK_S)
            for each in [each for each in speaking if each in ready]:
                try:
                    each.recv()
                except (EOFError, OSError):
                    speaking.remove(each)

    def _listen(self) -> None:
        ready = wait([each.connection for each in self._left], _LOOK_S)
        for each in self._left:
            if each.connection in ready:
                with interrupts.shielded():  # a message is taken whole
                    self._hear(each)
            elif time.monotonic() - each.heard_s > _SILENT_S:
                self._lose(each, LabError(f"board {each.number} is silent for {_SILENT_S:.0f} s", transient=True))
        self._assign()

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            process.stop(worker.process, timeout_s=_STOP_S)
            why = f"board {worker.number}: its process ended with {worker.process.returncode}{worker.last_words()}"
            self._lose(worker, LabError(why, transient=True))
            return
        worker.heard_s = time.monotonic()
        match message:
            case Said(text):
                if text:
                    self.say(f"board {worker.number}: {text}")
            case Ready():
                worker.ready = message
                self.say(f"board {worker.number} is ready")
            case Done():
                self._take(worker, message)
            case Failed(error, bug):
                if error is None:
                    raise BoardProcessError(f"board {worker.number}:\n{bug}")
                self._lose(worker, error)

    def _take(self, worker: _Worker, done: Done) -> None:
        worker.boot = None
        worker.faults = 0 if done.fault is None else worker.faults + 1
        if done.fault is None or not self._again(done):
            self._done[done.number] = done
        if done.fault is not None and (
            getattr(done.fault, "ends_run", False) or (worker.faults >= _TRIES and len(self._left) > 1)
        ):
            self._lose(worker, done.fault)

    def _again(self, done: Done) -> bool:
        """Whether another board tries the boot."""
        tries = self._tries[done.number] = self._tries.get(done.number, 0) + 1
        if tries >= _TRIES:
            return False
        self._faults.setdefault(done.number, []).append(done)
        heapq.heappush(self._queue, done.number)
        return True

    def _lose(self, worker: _Worker, error: FsjouleError) -> None:
        worker.over = True
        self._errors.append(error)
        self.say(f"board {worker.number} is left out: {error.what.splitlines()[0]}")
        process.stop(worker.process, timeout_s=_STOP_S)
        if worker.boot is not None:
            assert self._run is not None
            times = {"started_utc": worker.began_utc, "ended_utc": self._clock.utc()}
            fault = fault_of(error, self._boots[worker.boot][0], **times, steps=())
            lost = Done(worker.boot, replace(self._run, faults=(fault,)), boots=0, fault=error)
            worker.boot = None
            if not self._again(lost):
                self._done[lost.number] = lost

    def _assign(self) -> None:
        if self._run is None:
            return
        for each in self._left:
            if each.boot is None and each.ready is not None and self._queue:
                each.boot, each.began_utc = heapq.heappop(self._queue), self._clock.utc()
                try:
                    each.connection.send(Boot(each.boot, self._run, self._boots[each.boot]))
                except OSError:
                    return  # it has just ended, and the next look finds out


@contextmanager
def started_boards(assignment: Assignment, say: Callable[[str], None]) -> Generator[Boards]:
    """As many boards as the choice asks for, each in a virtual lab of its own; they end with the body.

    The first has the environment file's lab, the others NAME-2, NAME-3 and so on. Raises as `Boards.open`.
    """
    name, boards = assignment.environment.virtual_lab, Boards(say)
    assert name is not None, "the choice was checked"
    with ExitStack() as closing:
        closing.callback(boards.end)
        for number in range(1, assignment.choice.boards + 1):
            boards.workers.append(_started(number, name if number == 1 else f"{name}-{number}", assignment))
        with interrupts.interruptible():
            boards.open()
        yield boards


def _started(number: int, lab: str, assignment: Assignment) -> _Worker:
    ours, theirs = socket.socketpair()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the worker
    with theirs:
        command = [sys.executable, "-m", "fsjoule.runs.parallel.worker", str(theirs.fileno()), lab]
        started = process.start(command, log=log, pass_fds=[theirs.fileno()])
    connection: Connection[Any, Message] = Connection(ours.detach())
    connection.send(assignment)
    return _Worker(number, started, connection, log, time.monotonic())
