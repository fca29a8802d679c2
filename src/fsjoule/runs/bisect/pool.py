"""Several boards in guest time for one bisection: those that are free make boots ahead that it will probably want.

Figures of such boards depend on the kernel and the seed alone. So the boots that the search asks for are those that one
board would have made, whichever board makes them, and when.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from fsjoule.errors import FsjouleError, InfrastructureError, StorageError
from fsjoule.host import interrupts
from fsjoule.lab import EnvironmentFile
from fsjoule.model.bisection import KernelBoot
from fsjoule.model.labels import counted
from fsjoule.model.metrics import Metric
from fsjoule.ports import LikelyBoots
from fsjoule.runs.held_lab import check_room
from fsjoule.runs.parallel.boards import lab_of_board
from fsjoule.runs.parallel.processes import Processes
from fsjoule.runs.request import RunRequest

_log: Final = logging.getLogger(__name__)

# A boot whose board fails gets another one, once, and so does a kernel that does not work.
_TRIES: Final = 2
_WORKER: Final = "fsjoule.runs.bisect.worker"


@dataclass(frozen=True, slots=True)
class PoolAssignment:
    """To a board's process, first: the arguments of its `BoardBoots`."""

    request: RunRequest
    environment: EnvironmentFile
    metrics: tuple[Metric, ...]
    select: str
    folder: Path
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """To a board's process: boot and measure. None instead ends it."""

    kernel: Path
    seed: int
    profiled: bool = False


@dataclass(frozen=True, slots=True)
class PoolBoot:
    """A boot, or why there is none."""

    boot: KernelBoot | None = None
    fault: FsjouleError | None = None


@dataclass
class Pool:
    """ports.KernelBoots on `boards` boards, each in a virtual lab of its own.

    The run folders of boots that were made ahead are in the assignment's `folder` until they are asked for, and then in
    `results`. Those that nobody has asked for go at the end.
    """

    assignment: PoolAssignment
    boards: int
    results: Path
    worker: str = _WORKER
    _processes: Processes = field(init=False)
    _started: bool = field(default=False, init=False)
    _under_way: dict[int, Wish] = field(default_factory=dict[int, Wish], init=False)
    _made: dict[Wish, PoolBoot] = field(default_factory=dict[Wish, PoolBoot], init=False)
    _tries: dict[Wish, list[int]] = field(default_factory=dict[Wish, list[int]], init=False)
    _faults: dict[int, int] = field(default_factory=dict[int, int], init=False)
    _wanted: Wish | None = field(default=None, init=False)
    _likely: LikelyBoots = field(default_factory=lambda: lambda _: (), init=False)
    _lost: FsjouleError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._processes = Processes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._processes.end(list(self._under_way))
        unasked = sum(made.boot is not None for made in self._made.values())
        if unasked:
            _log.info("%s made ahead were not needed", counted(unasked, "boot"))
        shutil.rmtree(self.assignment.folder, ignore_errors=True)

    def expect(self, likely: LikelyBoots) -> None:
        """See ports.KernelBoots."""
        self._likely = likely
        self._assign()

    def measure(self, kernel: Path, seed: int, *, profiled: bool = False) -> KernelBoot:
        """See ports.KernelBoots. Raises what the boot raised on two boards, or on the last one."""
        wish = self._wanted = Wish(kernel, seed, profiled)
        with interrupts.interruptible():
            # Once it is made, what was likely before is so no longer: a board that is free waits for the next guesses.
            while wish not in self._made:
                self._assign()
                if not self._processes.left:
                    assert self._lost is not None
                    raise self._lost
                self._processes.listen(self._take, self._lose)
        made, self._wanted = self._made.pop(wish), None
        if made.boot is None:
            assert made.fault is not None
            raise made.fault
        self.results.mkdir(parents=True, exist_ok=True)
        return replace(made.boot, folder=Path(shutil.move(made.boot.folder, self.results / made.boot.folder.name)))

    def give_up(self, why: str) -> bool:
        """See ports.KernelBoots: the good end has failed on two boards."""
        del why
        return False

    def _assign(self) -> None:
        """Give each board that is free the wanted boot, or the next one that is likely."""
        if not self._started:
            shutil.rmtree(self.assignment.folder, ignore_errors=True)  # of a bisection that was killed
            name = self.assignment.environment.virtual_lab
            assert name is not None, "the request was checked"
            self._started = True
            check_room(self.assignment.environment, self.boards, warns=True)
            for number in range(1, self.boards + 1):
                self._processes.start(self.worker, lab_of_board(name, number), self.assignment)
        likely = (Wish(kernel, seed) for kernel, seed in self._likely(self._made_ahead))
        for number in self._processes.left:
            if number not in self._under_way and (wish := self._next(number, likely)) is not None:
                self._under_way[number] = wish
                self._processes.send(number, wish)

    def _made_ahead(self, kernel: Path, seed: int) -> KernelBoot | None:
        made = self._made.get(Wish(kernel, seed))
        return None if made is None or made.boot is None or made.boot.unfit is not None else made.boot

    def _next(self, number: int, likely: Iterator[Wish]) -> Wish | None:
        wanted, under_way = self._wanted, self._under_way.values()
        if wanted is not None and wanted not in self._made and wanted not in under_way:
            others = [each for each in self._processes.left if each not in self._tries.get(wanted, ())]
            if number in others or not others:
                return wanted
        # A boot that has failed once waits until somebody asks for it.
        return next(
            (one for one in likely if one not in self._made and one not in under_way and one not in self._tries),
            None,
        )

    def _take(self, number: int, made: PoolBoot) -> None:
        wish = self._under_way.pop(number)
        tries = self._tries.setdefault(wish, [])
        tries.append(number)
        if made.boot is not None and made.boot.unfit is None:
            self._faults[number] = 0
            self._made[wish] = made
            ahead = "" if wish == self._wanted else ", ahead"
            _log.info("board %s: booted and measured in %.0f s%s", number, made.boot.seconds, ahead)
            return
        self._faults[number] = self._faults.get(number, 0) + 1
        # A full disk or an unusable kernel is no board's fault.
        final = made.fault is not None and (
            isinstance(made.fault, StorageError) or not isinstance(made.fault, InfrastructureError)
        )
        if final or len(tries) >= _TRIES:
            self._made[wish] = made
        elif made.boot is not None:
            shutil.rmtree(made.boot.folder, ignore_errors=True)
        if not final and self._faults[number] >= _TRIES and len(self._processes.left) > 1 and made.fault is not None:
            self._lose(number, made.fault)

    def _lose(self, number: int, error: FsjouleError) -> None:
        self._lost = error
        if (wish := self._under_way.pop(number, None)) is not None:
            tries = self._tries.setdefault(wish, [])
            tries.append(number)
            if len(tries) >= _TRIES:
                self._made[wish] = PoolBoot(fault=error)
        self._processes.leave_out(number, error)
