"""The virtual lab of a run, if its environment file asks for one."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from fsjoule import images, lab
from fsjoule.errors import FsjouleError, LabError
from fsjoule.host.paths import state_dir
from fsjoule.kernels import TakenKernel
from fsjoule.virtual.lab import lab as virtual_lab
from fsjoule.virtual.lab.capacity import check_fits
from fsjoule.virtual.lab.services import board_template

Say = Callable[[str], None]
PLACE = virtual_lab.PLACE
being_changed = virtual_lab.being_changed


def emulator(board: str, *kernels: str | TakenKernel, say: Say) -> str:
    """Path of the QEMU for a virtual board with these kernels. Raises as `images.emulator` does."""
    return virtual_lab.emulator_for(board) or str(
        images.emulator(*kernels, progress=say, recipe=virtual_lab.recipe_of(board))
    )


def check_room(environment: lab.EnvironmentFile, boards: int, say: Say) -> None:
    """Check that so many labs of an environment file's board fit this computer. Raises as `check_fits` does."""
    check_fits(boards, board_template(environment.virtual_board or virtual_lab.REAL_TIME), state_dir(), say)


def check_equipment(environment: lab.EnvironmentFile, boards: int) -> None:
    """Check early what every board's lab checks again: room, limits and programs. Raises as they do."""
    check_room(environment, boards, lambda _warning: None)
    virtual_lab.check_tools(environment.virtual_board or virtual_lab.REAL_TIME)


@contextmanager
def virtual_lab_of(
    environment: lab.EnvironmentFile,
    emulator: Callable[[str], str],
    say: Say,
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
    variables = _variables_if_up(name) if as_it_is else None
    identity = None
    if variables is None:
        program = emulator(board)
        handle = virtual_lab.up(
            name, owner_pid=os.getpid(), emulator=program, meter_program=meter_program, board=board, progress=say
        )
        variables, identity = handle.environment, handle.identity if handle.started else None
    try:
        with lab.variables(variables):
            yield
    finally:
        if identity is not None:
            _take_down(name, identity, say)


def _variables_if_up(name: str) -> dict[str, str] | None:
    try:
        return virtual_lab.environment(name)
    except LabError:
        return None


def _take_down(name: str, identity: str, say: Say) -> None:
    """A failure is only a warning: it must not hide why the run ended, and the guardian ends the lab anyway."""
    say("virtual lab: going down")
    try:
        virtual_lab.down(name, identity=identity, progress=say)
    except FsjouleError as error:
        say(f"warning: the virtual lab could not be taken down: {error}")
