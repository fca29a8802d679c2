"""Virtual labs with other instruments beside fsjoule's own meter."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meter_wire as wire
from labgrid import Environment
from labgrid_process import forget_coordinator

from fsjoule.host.paths import project_dir
from fsjoule.lab import acquired_place, variables
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths


@dataclass(frozen=True, slots=True)
class InstrumentLab:
    """A lab that is up, whose place is held."""

    devices: Path

    def board_says(self, text: str) -> None:
        """A mark with its check, on the board's mark line."""
        descriptor = os.open(self.devices / "adapter-marks", os.O_WRONLY | os.O_NOCTTY)
        os.write(descriptor, f"{wire.checked(text)}\n".encode())
        os.close(descriptor)


@contextmanager
def instrument_lab(board: str) -> Generator[InstrumentLab]:
    """A lab of this virtual board, held until the end of the body."""
    handle = lab.up(board, owner_pid=os.getpid(), board=board)
    record = LabPaths.of(board).read()
    assert record is not None
    try:
        with variables(handle.environment), acquired_place(handle.place):
            yield InstrumentLab(Path(record.devices))
            forget_coordinator()
    finally:
        lab.down(board)


def labgrid_of(name: str) -> Any:
    """Labgrid's Environment of `env/NAME.yaml`."""
    environment_class: Any = Environment
    return environment_class(config_file=str(project_dir() / "env" / f"{name}.yaml"))
