"""The lab of an environment file around one or more runs: brought up if it is virtual, its places held meanwhile."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from fsjoule import images, lab
from fsjoule.errors import ExporterError, FsjouleError, LabError, Part, PlaceHeldError
from fsjoule.host import interrupts, process
from fsjoule.host.paths import state_dir
from fsjoule.images import CardImage
from fsjoule.kernels import TakenKernel
from fsjoule.lab.states import bad_after
from fsjoule.model import Profile
from fsjoule.ports import Meter
from fsjoule.virtual.lab import board as lab_board
from fsjoule.virtual.lab import lab as virtual_lab
from fsjoule.virtual.lab.capacity import check_fits, warn_of_shared_cpus
from fsjoule.virtual.lab.health import PlaceFaults, coordinator_faults
from fsjoule.virtual.lab.services import board_template

_log: Final = logging.getLogger(__name__)

_NOT_CHOSEN: Final = "not-chosen-yet"
PLACE = virtual_lab.PLACE
being_changed = virtual_lab.being_changed


@dataclass
class HeldLab:
    """Call `find`, `bring_up`, enter `place`, and `close` in the end.

    `coordinator` is the address of labgrid's coordinator, if the environment is not to say it. `guard` asks whether the
    places are still ours. `emulator` is the QEMU that was chosen for a virtual board; None for a lab that was up, or is
    real.
    """

    environment: lab.EnvironmentFile
    coordinator: str | None = None
    guard: lab.Guard = field(default_factory=lab.Guard, init=False)
    emulator: str | None = field(default=None, init=False)
    _opened: ExitStack = field(default_factory=ExitStack, init=False)
    _places: tuple[str, ...] = field(default=(), init=False)
    _held: ExitStack | None = field(default=None, init=False)
    _bad_after: int = field(default=0, init=False)
    _own: bool = field(default=False, init=False)
    _sought: bool = field(default=False, init=False)
    _up: bool = field(default=False, init=False)

    def find(self) -> bool:
        """Say what the board does without, and find its places, unless they are of a virtual lab that comes up later.

        Returns whether that was still to be done. Raises ConfigError, LabError.
        """
        if self._sought:
            return False
        for line in self.environment.does_without:
            _log.info("%s", line)
        self._bad_after = bad_after()
        self._opened.enter_context(lab.variables(self.environment.variables))
        if self.coordinator:
            self._opened.enter_context(lab.variables({"LG_COORDINATOR": self.coordinator}))
        if lab.wants_virtual_lab(self.environment):
            # labgrid reads the environment file before the lab is up.
            self._opened.enter_context(lab.variables({"LG_PLACE": PLACE}))
        else:
            self._find_places()
        self._sought = True
        return True

    def bring_up(self, kernels: Sequence[TakenKernel], *, meter_program: Path | None = None) -> None:
        """Bring a virtual lab up, if the environment file asks for one, whose board can run these kernels.

        A place that tags choose is awaited here. Once it is up, nothing happens. Raises ConfigError, LabError.
        """
        if self._up:
            return
        if lab.wants_virtual_lab(self.environment):
            self._own = True

            def choose(board: str) -> str:
                with interrupts.interruptible():
                    self.emulator = emulator(board, *kernels)
                if len(kernels) > 1:
                    _log.info("all kernels run on one emulator, %s", first_line(self.emulator, "--version"))
                return self.emulator

            self._opened.enter_context(virtual_lab_of(self.environment, choose, meter_program=meter_program))
            with self._explained():
                self._find_places()
        if not all(map(lab.is_name, self._places)):
            self._hold()  # labgrid reads a place's name with the environment file
        self._up = True

    def note_end(self, part: Part | None) -> None:
        """Note at the place how a run ended: this part failed, or None did. A lab of the run's own needs no notes."""
        if not self._own:
            self.guard.note_end(part, self._bad_after)

    @contextmanager
    def failing(self) -> Generator[None]:
        """A fault of the lab in the body, before a run has begun, is noted at the place; its first cause is named."""
        try:
            with self._explained():
                yield
        except LabError as error:
            if error.part is not None:
                self.note_end(error.part)
            raise

    @contextmanager
    def _explained(self) -> Generator[None]:
        """A fault of the lab in the body names first which program of a virtual lab has died, if that is why."""
        try:
            yield
        except PlaceHeldError:
            raise
        except LabError as error:
            error.blame_lab(self.faults())
            raise

    def _find_places(self) -> None:
        written, named = self.environment.places, os.environ.get("LG_PLACE") or ""
        with interrupts.interruptible():
            self._places = lab.find_places(written, self.environment.wanted)
        self._opened.enter_context(lab.variables(lab.place_variables(written, self._places)))
        if self.environment.wanted.tags and not named:
            # labgrid reads the environment file before the place is chosen, too.
            self._opened.enter_context(lab.variables({"LG_PLACE": _NOT_CHOSEN}))
        if self._places and named not in self._places and all(map(lab.is_name, self._places)):
            _log.info("place %s", ", ".join(self._places))
        if named.startswith(lab.RESERVED) and not self.environment.wanted.tags:
            self._hold()  # a reservation that nobody uses ends within a minute

    def faults(self, part: Part | None = None) -> tuple[str, ...]:
        """See ports.LabHealth."""
        return PlaceFaults(*self.where).faults(part)

    @property
    def where(self) -> tuple[str, str]:
        """The coordinator's address, and the board's place as far as it is chosen."""
        return os.environ.get("LG_COORDINATOR", ""), next(iter(self.guard.places), "")

    @contextmanager
    def place(self) -> Generator[None]:
        """Hold the board's place. Raises PlaceHeldError if somebody else does."""
        self._hold()
        try:
            yield
        finally:
            self._give_back()

    def close(self) -> None:
        """Release the place, take down the lab that `bring_up` brought up, and forget how to reach it."""
        interrupts.tell()
        try:
            self._give_back()
        finally:
            self._opened.close()

    def _hold(self) -> None:
        if self._held is None:
            lab.remove_left_connections()
            with self._explained(), ExitStack() as opening:
                wanted = self.environment.wanted
                try:
                    acquired = lab.acquired_places(self._places, wanted=wanted, faults=coordinator_faults)
                    self.guard = opening.enter_context(acquired)
                except ExporterError as error:
                    if not self._own:
                        lab.note_end(error.place, error.part, self._bad_after)
                    raise
                self._places = self.guard.places
                opening.enter_context(lab.variables(lab.place_variables(self.environment.places, self._places)))
                self._held = opening.pop_all()

    def _give_back(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()


def emulator(board: str, *kernels: str | TakenKernel) -> str:
    """Path of the QEMU for a virtual board with these kernels. Raises as `images.emulator` does."""
    return virtual_lab.emulator_for(board) or str(images.emulator(*kernels, recipe=virtual_lab.recipe_of(board)))


def check_room(environment: lab.EnvironmentFile, boards: int, *, warns: bool = False) -> None:
    """Check that so many labs of an environment file's board fit this computer. Raises as `check_fits` does.

    It warns once, where they start.
    """
    template = board_template(environment.virtual_board or virtual_lab.REAL_TIME)
    check_fits(boards, template, state_dir())
    if warns:
        warn_of_shared_cpus(boards, template)


def check_equipment(environment: lab.EnvironmentFile, boards: int) -> None:
    """Check early what every board's lab checks again: room, limits and programs. Raises as they do."""
    check_room(environment, boards)
    virtual_lab.check_tools(environment.virtual_board or virtual_lab.REAL_TIME)


@contextmanager
def virtual_lab_of(
    environment: lab.EnvironmentFile,
    emulator: Callable[[str], str],
    *,
    meter_program: Path | None = None,
    as_it_is: bool = False,
) -> Generator[None]:
    """In the body labgrid's variables name the environment file's virtual lab, if it asks for one.

    A lab that is not up is brought up with the `emulator` for its board, and taken down after the body. With `as_it_is`
    a running lab serves with any QEMU and meter; otherwise it must match the one that would be brought up. Raises as
    `virtual_lab.up` does.
    """
    if environment.virtual_lab is None or not lab.wants_virtual_lab(environment):
        yield
        return
    name, board = environment.virtual_lab, environment.virtual_board or virtual_lab.REAL_TIME
    variables, identity = None, None
    if as_it_is:
        with suppress(LabError):  # it is not up
            variables = virtual_lab.environment(name)
    if variables is None:
        program = emulator(board)
        handle = virtual_lab.up(name, owner_pid=os.getpid(), emulator=program, meter_program=meter_program, board=board)
        variables, identity = handle.environment, handle.identity if handle.started else None
    try:
        with lab.variables(variables):
            yield
    finally:
        if identity is not None:
            _take_down(name, identity)


def _take_down(name: str, identity: str) -> None:
    """A failure is only a warning: it must not hide why the run ended, and the guardian ends the lab anyway."""
    _log.info("virtual lab: going down")
    try:
        virtual_lab.down(name, identity=identity)
    except FsjouleError as error:
        _log.warning("the virtual lab could not be taken down: %s", error)


class LabProfiler:
    """ports.Profiler for the board at a place of the lab at a coordinator."""

    def __init__(self, coordinator: str, place: str) -> None:
        self._at = (coordinator, place)

    def count_next(self) -> None:
        """See ports.Profiler."""
        lab_board.profile_next(*self._at)

    def take(self, window: str) -> Profile | None:
        """See ports.Profiler."""
        return lab_board.take_profile(*self._at, window)


class Equipment(NamedTuple):
    """A board, its meter, and what counts the board's instructions."""

    board: lab.LabgridBoard
    meter: Meter
    profiler: LabProfiler


def equipment(
    target: Any,  # noqa: ANN401 - a labgrid Target; labgrid is fsjoule.lab's
    cards: Mapping[tuple[str, str], CardImage],
    where: tuple[str, str],
) -> Equipment:
    """The board and the meter of a labgrid target, with possible cards. Raises LabError.

    `where` is the coordinator's address and the board's place.
    """
    with lab.lab_errors("finding the board's parts"):
        board = lab.LabgridBoard(
            target,
            cards,
            partial(lab_board.set_seed, *where),
            partial(lab_board.losses, *where),
            partial(lab_board.card_file, *where),
            record_writes=partial(lab_board.record_writes, *where),
            own_lines=partial(lab_board.own_lines, *where),
            health=PlaceFaults(*where),
        )
        meter = lab.board_meter(target, PlaceFaults(*where), lambda: board.shell, lab_board.start_simulated_counter)
    return Equipment(board, meter, LabProfiler(*where))


def first_line(*argv: str) -> str:
    """The first line of a program's output, or "unknown"."""
    done = process.run(argv, timeout_s=20.0, check=False)
    return ((done.stdout or done.stderr).decode(errors="replace").strip().splitlines() or ["unknown"])[0]
