"""A virtual lab's board as labgrid's users have it: its place acquired, and its strategy."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labgrid import Environment
from labgrid_process import forget_coordinator

from fsjoule.lab import BoardStrategy, acquired_place, variables
from fsjoule.virtual.lab import lab


@contextmanager
def strategy_of(environment: Path, place: str) -> Generator[BoardStrategy]:
    """The strategy of an environment file's board, whose place is this process's for as long."""
    with acquired_place(place):
        environment_class: Any = Environment
        labgrid = environment_class(config_file=str(environment))
        try:
            yield labgrid.get_target().get_driver("BoardStrategy")
        finally:
            labgrid.cleanup()
            forget_coordinator()


@contextmanager
def lab_beside(name: str, board: str) -> Generator[lab.LabHandle]:
    """A lab with such a board, up for as long; labgrid and a bench find it by its environment variables."""
    handle = lab.up(name, board=board, owner_pid=os.getpid())
    try:
        with variables(handle.environment):
            yield handle
    finally:
        lab.down(name)


@contextmanager
def lab_board(name: str, environment: Path, board: str = lab.REAL_TIME) -> Generator[BoardStrategy]:
    """The strategy of the board of such a lab."""
    with lab_beside(name, board) as handle, strategy_of(environment, handle.place) as strategy:
        yield strategy
