"""Board and meter of a labgrid target, with a look at the parts of its lab that have died."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from fsjoule import lab
from fsjoule.images import CardImage
from fsjoule.ports import Meter
from fsjoule.virtual.instruments import simulated_counter
from fsjoule.virtual.lab import board as lab_board
from fsjoule.virtual.lab import health as lab_health


class Equipment(NamedTuple):
    """A board, its meter, and a look at the lab's dead parts."""

    board: lab.LabgridBoard
    meter: Meter
    diagnose: Callable[[], tuple[str, ...]]


def equipment(
    target: Any,  # noqa: ANN401 - a labgrid Target; labgrid is fsjoule.lab's
    cards: Mapping[tuple[str, str], CardImage],
    where: tuple[str, str],
    say: Callable[[str], None],
) -> Equipment:
    """The board and the meter of a labgrid target, with possible cards. Raises LabError.

    `where` is the coordinator's address and the board's place.
    """
    with lab.lab_errors("finding the board's parts"):
        diagnose = partial(lab_health.lab_faults, *where)
        board = lab.LabgridBoard(
            *(target, cards, say),
            *(partial(lab_board.set_seed, *where), partial(lab_board.losses, *where)),
            diagnose=diagnose,
            diagnose_power=partial(lab_health.power_faults, *where),
        )
        meter = lab.board_meter(
            target, partial(lab_health.meter_faults, *where), lambda: board.shell, simulated_counter.start
        )
    return Equipment(board, meter, diagnose)
