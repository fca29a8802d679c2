"""The emulated instruments of a virtual lab: their programs, what the exporter offers of them, and their variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.host.paths import project_dir
from fsjoule.virtual.board.config import BoardConfig

_PROGRAMS: Final = "fsjoule.virtual.instruments"
_PPK2: Final = "ppk2"
_JOULESCOPE: Final = "joulescope"
# Those without limits of a data sheet that fsjoule knows: labgrid/virtual/meters has an instrument file of each.
_WITH_FILES: Final = frozenset({_JOULESCOPE, "scpi"})
_METERS: Final = "FSJOULE_METERS_DIR"
_DRIVER: Final = "FSJOULE_JOULESCOPE"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the lab, which is ready when its `files` exist."""

    name: str
    argv: tuple[str, ...]
    files: tuple[Path, ...]


def programs(board: BoardConfig, devices: Path) -> Iterator[Program]:
    """The programs of a board's instruments. A Joulescope has none: its driver's stand-in is in its user's process."""
    feed = ("--feed", str(devices / "feed"))
    for wire in board.adapter:
        links = {"--wire-link": wire, "--port-link": devices / "mark-line"}
        yield _program("adapter", "serial_adapter", links)
    for name in board.instruments:
        if name == _PPK2:
            links = {"--stream-link": devices / name, "--pin-link": board.ppk2_pin[0]}
            yield _program(name, "program", links, *feed)
        elif name != _JOULESCOPE:
            yield _program(name, "asked", {"--address-file": devices / name}, name, *feed)


def resources(board: BoardConfig, devices: Path, number: int) -> dict[str, str]:
    """Variables of the exporter's template: the address of each instrument that has one, and that there is a PPK2."""
    told = {"ADAPTER": "1"} if board.adapter else {}
    for name in board.instruments:
        told[name.upper()] = f"joulescope:js220/SIM{number:03}" if name == _JOULESCOPE else address(devices / name)
    return told


def variables(board: BoardConfig) -> dict[str, str]:
    """Variables with which `fsjoule meter` finds what these instruments need. A folder of the user's own wins."""
    told: dict[str, str] = {}
    if _JOULESCOPE in board.instruments:
        told[_DRIVER] = f"{_PROGRAMS}.joulescope"
    if _WITH_FILES & set(board.instruments):
        told[_METERS] = os.environ.get(_METERS) or str(project_dir() / "labgrid" / "virtual" / "meters")
    return told


def address(file: Path) -> str:
    """The address that an instrument is asked at, from its file; that of a terminal is its link."""
    return file.read_text() if file.is_file() else str(file)


def _program(name: str, module: str, files: dict[str, Path], *more: str) -> Program:
    words = (word for option, file in files.items() for word in (option, str(file)))
    argv = (sys.executable, "-m", f"{_PROGRAMS}.{module}", *more, *words)
    return Program(name, argv, tuple(files.values()))
