"""The work of a plan among boards: its next unit goes to a board that is free.

In guest time a unit is a boot. In real time it is a block, one boot of each kernel on one board, whose level is in all
of its figures. A unit that fails goes whole to a board that has not tried it yet. A board that is known to be dead
costs no unit a try.

In guest time a board for which no unit is left helps with the crash states of one that another board measures.
"""

from __future__ import annotations

import bisect
import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, count, pairwise
from typing import Any, Final

from fsjoule import lab
from fsjoule.bench.boots import boot_key
from fsjoule.bench.crash.shared import Claim, Share, shares_states
from fsjoule.bench.instrument import check_board
from fsjoule.bench.tries import fault_of
from fsjoule.errors import FsjouleError, InfrastructureError, LabError
from fsjoule.host import interrupts
from fsjoule.host.clock import HostClock
from fsjoule.model import BoardFacts, LabFacts, Planned, PoolPlace, Run
from fsjoule.runs.held_lab import being_changed, check_room
from fsjoule.runs.parallel.messages import Assignment, BootTask, Done, Measured, Ready
from fsjoule.runs.parallel.processes import Processes
from fsjoule.suites import BoardRates, estimate, left_text

_log: Final = logging.getLogger(__name__)

# A boot that fails on so many boards fails for good: its kernel may be why. A board fails so often in a row, too.
_TRIES: Final = 2
_WORKER: Final = "fsjoule.runs.parallel.worker"


class NoBoardError(LabError):
    """All boards of the run have failed, the last one with this error."""

    ends_run = True

    def __init__(self, last: FsjouleError) -> None:
        super().__init__(f"no board is left: {last.what}", hint=last.hint)


@dataclass
class _BoardProgress:
    ready: Ready | None = None
    ready_s: float = 0.0
    boot: int | None = None
    began_utc: str = ""
    began_s: float = 0.0
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    measured: int = 0
    measured_s: float = 0.0
    faults: int = 0
    helps: bool = False  # with the unit of another board
    checks: int | None = None  # crash states of this entry
    waits: Claim | None = None  # for what others check

    @property
    def place(self) -> str:
        return self.ready.lab.place if self.ready is not None and self.ready.lab is not None else ""


@dataclass
class Boards:
    """The boards of a run. Call `begin`, `boot` for each unit in the order of the plan, and `end`.

    `pool`: they are places of one lab, and faults name them. `places` are those that were ready, with their meters.
    `on_measured` gets each measurement at once, with the numbers of board and unit. Boots are numbered in the order of
    the plan, and those of second tries after them. With `share`, which answers claims, boards help each other, and
    `on_helped` hears when one has.
    """

    processes: Processes
    boards: dict[int, _BoardProgress]
    pool: bool = False
    places: dict[str, PoolPlace] = field(default_factory=dict[str, PoolPlace])
    on_measured: Callable[[int, int, Measured], None] = lambda _board, _unit, _measured: None
    share: Callable[[Claim], Share] | None = None
    on_helped: Callable[[Done], None] = lambda _done: None
    _helped: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # board and unit
    _pins: Mapping[int, str] = field(default_factory=dict[int, str])
    _facts: dict[str, BoardFacts] = field(default_factory=dict[str, BoardFacts])
    _run: Run | None = None
    _clock: HostClock = field(default_factory=HostClock)
    _boots: Sequence[tuple[Planned, ...]] = ()
    _queue: list[int] = field(default_factory=list[int])
    _faults: dict[int, dict[int, Done]] = field(default_factory=dict[int, dict[int, Done]])  # by boot and board
    _done: dict[int, Done] = field(default_factory=dict[int, Done])
    _errors: list[FsjouleError] = field(default_factory=list[FsjouleError])
    _released: int | None = None
    _reserved: Sequence[range] = ()
    _unreserved: Iterator[int] = field(default_factory=count)
    _used: set[int] = field(default_factory=set[int])
    _took_s: float = 0.0
    _guessed_s: float = 0.0

    @property
    def left_s(self) -> float | None:
        """The seconds until all boots are done, about; None before enough is measured, 0 after the last."""
        boards = [self.boards[number] for number in self.processes.left]
        working = [(each, each.boot) for each in boards if each.boot is not None and not each.helps]
        guessed_s = self._guessed_s + sum(self._guess_s(boot, each.measured) for each, boot in working)
        if not guessed_s or not self.processes.left:
            return None
        # As far as the guesses were off for what is measured.
        scale = (self._took_s + sum(each.measured_s for each, _ in working)) / guessed_s
        now_s = time.monotonic()
        of_working = [max(0.0, scale * self._guess_s(boot) - now_s + each.began_s) for each, boot in working]
        together_s = sum(of_working) + scale * sum(map(self._guess_s, self._waiting))
        return max(together_s / len(self.processes.left), *of_working, 0.0)

    def _guess_s(self, number: int, entries: int | None = None) -> float:
        """The seconds of a boot, or of its first entries."""
        return estimate(self._boots[number][:entries], BoardRates()).seconds if entries != 0 else 0.0

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

    def begin(self, run: Run, boots: Sequence[tuple[Planned, ...]], pins: Mapping[int, str], booted: int) -> None:
        """Start with the units of the run.

        A run that is resumed has `booted` so often, and `pins` are places at which a unit has begun.
        """
        self._run, self._boots, self._queue = run, boots, list(range(len(boots)))
        self._pins = pins
        ends = list(accumulate((len(set(map(boot_key, each))) for each in boots), initial=booted + 1))
        self._reserved, self._unreserved = [range(*each) for each in pairwise(ends)], count(ends[-1])
        self._facts = dict(run.boards)
        for place in run.places:
            known = self.places.get(place.lab.place)
            held_s = place.held_s + (0.0 if known is None else known.held_s)
            self.places[place.lab.place] = replace(place if known is None else known, meter=place.meter, held_s=held_s)
        self._assign()

    def release(self, count: int) -> None:
        """Begin only the first `count` units, until more are released; without a call all are."""
        self._released = count
        self._assign()

    @property
    def _waiting(self) -> list[int]:
        return [each for each in self._queue if self._released is None or each < self._released]

    def boot(self, number: int) -> tuple[Done, tuple[Done, ...]]:
        """A boot when it is done, and the tries before it that failed. Raises NoBoardError if no board is left."""
        assert self._released is None or number < self._released, "no board makes this boot"
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
        busy = [number for number, each in self.boards.items() if each.boot is not None or not each.ready]
        self.processes.end(busy, self._hear_last)
        for board in self.boards.values():
            self._note_held(board)
        places = [self.boards[number].place for number in self.boards if self.processes.was_killed(number)]
        self.boards = {}
        for place in filter(None, places if self.pool else ()):
            lab.release_left(place)

    @property
    def done(self) -> Sequence[Done]:
        """Boots in the order of the plan, and after `end` those that it cut short."""
        return [done for _, done in sorted(self._done.items())]

    def _hear_last(self, number: int, message: Any) -> None:  # noqa: ANN401 - whatever a process sends
        """Take over what a board has still measured, and what is known of the boot that was cut short."""
        if isinstance(message, Measured):
            self._pass_on(number, message)
        if isinstance(message, Done):
            done = self._noted(number, message)
            if self.boards[number].helps:
                self.on_helped(done)
            else:
                self._done.setdefault(message.number, done)
        if isinstance(message, Claim) and self.share is not None:
            with suppress(InfrastructureError):  # the run ends with the first cause
                self.share(message)  # it gets no answer any more, but what it knows is kept

    def _pass_on(self, number: int, measured: Measured) -> None:
        board = self.boards[number]
        if board.boot is None or self._other_board(measured.run) is not None:
            return  # it is left out when its boot is done
        board.measured, board.measured_s = board.measured + 1, time.monotonic() - board.began_s
        local = measured.measurement.boot
        if local not in board.numbers:
            reserved = self._reserved[board.boot]
            free = local <= len(reserved) and reserved[local - 1] not in self._used
            board.numbers[local] = reserved[local - 1] if free else next(self._unreserved)
            self._used.add(board.numbers[local])
        self._note_meter(board.place, measured.run)
        place = board.place if self.pool else ""
        measurement = replace(measured.measurement, boot=board.numbers[local], place=place)
        self.on_measured(number, board.boot, replace(measured, measurement=measurement))

    def _other_board(self, run: Run) -> LabError | None:
        """Why facts in it are of another kind of board than the run's; None if they are not."""
        for label, facts in run.boards.items():
            try:
                check_board(self._facts.setdefault(label, facts), facts)
            except LabError as error:
                return error
        return None

    def _note_held(self, board: _BoardProgress) -> None:
        """Note how long the place has been held; once, when it is given back."""
        if board.place in self.places and board.ready_s:
            held_s = self.places[board.place].held_s + time.monotonic() - board.ready_s
            self.places[board.place] = replace(self.places[board.place], held_s=held_s)
            board.ready_s = 0.0

    def _listen(self) -> None:
        self.processes.listen(self._hear, self._lose)
        self._assign()

    def _hear(self, number: int, message: Any) -> None:  # noqa: ANN401 - whatever a process sends
        match message:
            case Ready():
                board = self.boards[number]
                board.ready, board.ready_s = message, time.monotonic()
                if self.pool and message.lab is not None:
                    before = self.places.get(board.place, PoolPlace(message.lab))
                    self.places[board.place] = replace(before, lab=message.lab)
                where = f", place {self.boards[number].place}" if self.pool else ""
                _log.info("board %s is ready%s", number, where)
            case Measured():
                self._pass_on(number, message)
            case Done():
                self._take(number, message)
            case Claim():
                self._give(number, message)
            case _:
                raise TypeError(f"board {number} sent {message!r}")

    def _give(self, number: int, claim: Claim) -> None:
        """Answer a claim. Who measures waits at the end for the batches that others still check."""
        assert self.share is not None, "boards in guest time only"
        board, share = self.boards[number], self.share(claim)
        board.checks = None if share.batch is None else claim.entry
        if share.batch is None and not board.helps:
            board.waits = claim
        else:
            self.processes.send(number, share)
        self._give_rest()

    def _give_rest(self) -> None:
        """Answer those that have waited. What a board that was left out has not checked, they check."""
        under_way = {self.boards[number].checks for number in self.processes.left}
        for number, board in self.boards.items():
            if self.share is not None and board.waits is not None and board.waits.entry not in under_way:
                self.processes.send(number, self.share(board.waits))
                board.waits = None

    def _take(self, number: int, done: Done) -> None:
        board = self.boards[number]
        board.boot, board.checks, board.waits = None, None, None
        if board.helps:
            board.helps = False
            done = self._noted(number, done)
            board.faults = 0 if done.fault is None else board.faults + 1
            self.on_helped(done)
            if done.fault is not None and (done.dead or board.faults >= _TRIES):
                self._lose(number, done.fault)
            self._give_rest()
            return
        if done.fault is None:
            self._took_s += time.monotonic() - board.began_s
            self._guessed_s += self._guess_s(done.number)
        done = self._noted(number, done)
        board.faults = 0 if done.fault is None else board.faults + 1
        if done.fault is None:
            self._done[done.number] = done
            return
        self._fail(number, done)
        hopeless = board.faults >= _TRIES and len(self.processes.left) > 1
        if done.dead or hopeless or getattr(done.fault, "ends_run", False):
            self._lose(number, done.fault)

    def _noted(self, number: int, done: Done) -> Done:
        """What a board has sent, with its place. Facts of another kind of board are a fault: it is left out."""
        place = self.boards[number].place if self.pool else ""
        if (error := self._other_board(done.run)) is not None:
            where = f"{place} has another board than the run's: " if place else ""
            done = replace(done, fault=LabError(f"{where}{error.what}", hint=error.hint), dead=True)
        self._note_meter(place, done.run)
        faults = done.run.faults
        if place:
            # With the place and the time in front: a run on several boards has many.
            ended = ((each, each.ended_utc.partition("T")[2].removesuffix("Z")) for each in faults)
            faults = tuple(
                replace(each, what=f"place {place} at {clock} UTC: {each.what}", place=place) for each, clock in ended
            )
        boots = dict(self.boards[number].numbers)
        return replace(done, place=place, boots=boots, run=replace(done.run, faults=faults))

    def _note_meter(self, place: str, run: Run) -> None:
        if place in self.places and self.places[place].meter is None:
            self.places[place] = replace(self.places[place], meter=run.meter)

    def _fail(self, number: int, done: Done) -> None:
        """Let another board try a unit that has failed on this one."""
        self._faults.setdefault(done.number, {})[number] = done
        bisect.insort(self._queue, done.number)

    def _lose(self, number: int, error: FsjouleError) -> None:
        self._errors.append(error)
        self.processes.leave_out(number, error)
        board = self.boards[number]
        self._note_held(board)
        if board.boot is not None:
            assert self._run is not None
            times = {"started_utc": board.began_utc, "ended_utc": self._clock.utc()}
            fault = fault_of(error, self._boots[board.boot][0], **times, steps=())
            lost = self._noted(number, Done(board.boot, replace(self._run, boards={}, faults=(fault,)), fault=error))
            helped, board.helps, board.boot, board.checks, board.waits = board.helps, False, None, None, None
            if helped:
                self.on_helped(lost)
            else:
                self._fail(number, lost)
        self._give_rest()

    def _give_up(self) -> None:
        """End units that have failed on two of the boards that are left, or on all of them that may try."""
        for boot in [each for each in self._queue if each in self._faults or each in self._pins]:
            failed = self._faults.get(boot, {})
            may_try = {number for number in self.processes.left if self._may_try(number, boot)}
            if len(failed.keys() & may_try) < min(_TRIES, len(may_try)) or not (failed or self.processes.left):
                continue
            self._queue.remove(boot)
            if failed:
                self._done[boot] = list(failed.values())[-1]
                continue
            assert self._run is not None
            place = self._pins[boot]
            error = LabError(
                f"repetition {self._boots[boot][0].repetition} began at {place}, which this run does not have",
                hint=f"--place-tag name={place}, with --boards 2 or more, goes on with it",
            )
            self._done[boot] = Done(boot, self._run, fault=error)

    def _may_try(self, number: int, boot: int) -> bool:
        """Whether a unit may go to a board. One that has begun goes on there; a board that is not ready may be it."""
        pinned, board = self._pins.get(boot), self.boards[number]
        return pinned is None or board.ready is None or board.place == pinned

    def _assign(self) -> None:
        if self._run is None:
            return
        self._give_up()
        for number in self.processes.left:
            board = self.boards[number]
            if board.boot is not None or board.ready is None:
                continue
            untried = (each for each in self._waiting if number not in self._faults.get(each, {}))
            boot = next((each for each in untried if self._may_try(number, each)), None)
            if boot is None:
                self._help(number)
            else:
                self._queue.remove(boot)
                board.boot, board.began_utc, board.numbers = boot, self._clock.utc(), {}
                board.began_s, board.measured, board.measured_s = time.monotonic(), 0, 0.0
                meter = self.places[board.place].meter if board.place in self.places else None
                run = replace(self._run, meter=self._run.meter or meter, places=())
                self.processes.send(number, BootTask(board.boot, run, self._boots[board.boot]))

    def _help(self, number: int) -> None:
        """Let a board without a unit check crash states of one that another board measures; once for each."""
        for other in self.boards.values():
            if self.share is None or self._run is None or other.boot is None or other.helps:
                continue
            entries = tuple(filter(shares_states, self._boots[other.boot][other.measured :]))
            tried = (number, other.boot) in self._helped or number in self._faults.get(other.boot, {})
            if tried or not entries:
                continue
            self._helped.add((number, other.boot))
            board = self.boards[number]
            board.boot, board.helps, board.numbers = other.boot, True, {}
            board.began_utc, board.began_s = self._clock.utc(), time.monotonic()
            _log.info("board %s helps to check crash states", number)
            self.processes.send(number, BootTask(other.boot, replace(self._run, places=()), entries, helps=True))
            return


def lab_of_board(name: str, number: int) -> str:
    """The virtual lab of a board: the first has the environment file's, the others NAME-2, NAME-3 and so on."""
    return name if number == 1 else f"{name}-{number}"


@contextmanager
def started_boards(assignment: Assignment, *, worker: str = _WORKER) -> Generator[Boards]:
    """As many boards as the request asks for; they end with the body.

    Each is in a virtual lab of its own, or has a place of the pool that the environment's tags choose. `worker` is the
    module of a board's process. Raises as `Boards.open`.
    """
    environment, numbers = assignment.environment, range(1, assignment.request.boards + 1)
    pool = bool(environment.wanted.tags)
    if not pool:
        check_room(environment, len(numbers), warns=True)
    lab.remove_left_connections()
    boards = Boards(Processes(), {number: _BoardProgress() for number in numbers}, pool)
    with ExitStack() as closing:
        closing.callback(boards.end)
        for number in numbers:
            name = "" if pool else lab_of_board(environment.virtual_lab or "", number)
            if name and (changed := being_changed(name)):
                _log.info("%s: board %s waits for its end", changed, number)
            boards.processes.start(worker, name, assignment)
        with interrupts.interruptible():
            boards.open()
        yield boards


@dataclass(frozen=True, slots=True)
class BoardsPace:
    """As `suites.Pace`, from what whole boots took. Boards are ahead of the measurements that have been told."""

    boards: Boards
    may_end_early: bool

    def note(self, _number: int, _seconds: float, _booting_s: float) -> None:
        """Nothing is learned from when a measurement is told."""

    @property
    def text(self) -> str:
        """`about 14 min left`, or nothing."""
        return left_text(self.boards.left_s or None, may_end_early=self.may_end_early)
