"""The emulated instruments of a virtual lab: their programs, what the exporter offers of them, and their variables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fsjoule.host.paths import project_dir
from fsjoule.virtual.board.config import BoardConfig
from fsjoule.virtual.instruments.emulator import Program, emulator_of, module_program, program_of

_METERS: Final = "FSJOULE_METERS_DIR"


def programs(board: BoardConfig, devices: Path) -> Iterator[Program]:
    """The programs of a board's instruments, and the serial adapter at its mark line for them."""
    for wire in board.adapter:
        links = {"--wire-link": wire, "--port-link": devices / "mark-line"}
        yield module_program("adapter", "serial_adapter", links)
    for name in board.instruments:
        if (program := program_of(name, board, devices)) is not None:
            yield program


def resources(board: BoardConfig, devices: Path, number: int) -> dict[str, str]:
    """Variables of the exporter's template: instruments by name, at serial ports and others, and each one's address."""
    serial = [name for name in board.instruments if emulator_of(name).serial]
    variables = {"ADAPTER": "1" if board.adapter else "", "PORTS": " ".join(serial)}
    variables["INSTRUMENTS"] = " ".join(name for name in board.instruments if name not in serial)
    for name in board.instruments:
        fixed = emulator_of(name).address.format(number=number)
        variables[f"AT_{name}"] = fixed or address(devices / name)
    return variables


def variables(board: BoardConfig) -> dict[str, str]:
    """Variables with which `fsjoule meter` finds what these instruments need. A folder of the user's own wins."""
    if not board.instruments:
        return {}
    meters = os.environ.get(_METERS) or str(project_dir() / "labgrid" / "virtual" / "meters")
    needed = {_METERS: meters}
    for name in board.instruments:
        needed |= emulator_of(name).variables
    return needed


def address(file: Path) -> str:
    """The address that an instrument is asked at, from its file; that of a terminal is its link."""
    return file.read_text() if file.is_file() else str(file)
