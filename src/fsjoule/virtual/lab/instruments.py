"""The emulated instruments of a virtual lab: their programs, what the exporter offers of them, and their variables.

And its meter for callers outside labgrid, without taking bytes from the lab (`meter_opener`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, LabError
from fsjoule.host.paths import project_dir
from fsjoule.meter.links.streams import NetworkStream, Stream, TtyStream
from fsjoule.virtual.board.config import BoardConfig
from fsjoule.virtual.instruments.emulator import Program, emulator_of, instruments_of, module_program, program_of
from fsjoule.virtual.lab.files import LabPaths

_METERS: Final = "FSJOULE_METERS_DIR"
_LISTENS: Final = re.compile(r"tcp,(?:127\.0\.0\.1,)?(\d+)$", re.MULTILINE)


def programs(board: BoardConfig, devices: Path) -> Iterator[Program]:
    """The programs of a board's instruments, and the serial adapter at its mark line for them."""
    for wire in board.adapter:
        links = {"--wire-link": wire, "--port-link": devices / "mark-line"}
        yield module_program("adapter", "serial_adapter", links)
    for name in instruments_of(board):
        if (program := program_of(name, board, devices)) is not None:
            yield program


def resources(board: BoardConfig, devices: Path, number: int) -> dict[str, str]:
    """Variables of the exporter's template: instruments by name, at serial ports and others, and each one's address."""
    names = instruments_of(board)
    serial = [name for name in names if emulator_of(name).serial]
    variables = {"ADAPTER": "1" if board.adapter else "", "PORTS": " ".join(serial)}
    variables["INSTRUMENTS"] = " ".join(name for name in names if name not in serial)
    for name in names:
        fixed = emulator_of(name).address.format(number=number)
        variables[f"AT_{name}"] = fixed or address(devices / name)
    return variables


def variables(board: BoardConfig) -> dict[str, str]:
    """Variables with which `fsjoule meter` finds what these instruments need. A folder of the user's own wins."""
    if not board.instruments:
        return {}
    meters = os.environ.get(_METERS) or str(project_dir() / "labgrid" / "virtual" / "meters")
    needed = {_METERS: meters}
    for name in instruments_of(board):
        needed |= emulator_of(name).variables
    return needed


def address(file: Path) -> str:
    """The address that an instrument is asked at, from its file; that of a terminal is its link."""
    return file.read_text() if file.is_file() else str(file)


def meter_opener(name: str) -> Callable[[], Stream]:
    """A function that opens the meter of the lab `name`, each time in the right way. NAME/2 is that of its board 2.

    While the lab's place is acquired, the exporter's ser2net has the meter's terminal and serves its bytes to all
    clients; otherwise the terminal is free. Raises LabError if the lab is down.
    """
    lab, _, number = name.partition("/")
    record = LabPaths.of(lab).read()
    if record is None or not record.ready:
        raise LabError(f"the lab {lab!r} is down", hint=f"fsjoule lab up --name {lab}")
    known = {"": 1} | {str(each.number): each.number for each in record.boards}
    if number not in known:
        raise ConfigError.unknown(f"board of the lab {lab!r}", number, list(known)[1:])
    terminal = record.devices_of(known[number]) / "meter"

    def opened() -> Stream:
        port = _served_at(terminal)
        return TtyStream(str(terminal)) if port is None else NetworkStream("127.0.0.1", port, telnet=True)

    return opened


def _served_at(terminal: Path) -> int | None:
    """The port on which a ser2net of this computer serves the terminal, from its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().decode(errors="replace").replace("\0", "\n")
        except OSError:
            continue
        if f",{terminal}," in arguments and (found := _LISTENS.search(arguments)):
            return int(found.group(1))
    return None
