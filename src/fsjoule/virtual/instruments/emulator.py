"""How a virtual lab has an instrument: an emulator's module has an `EMULATOR`, and the instrument's row names it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.meter.instruments import INSTRUMENTS
from fsjoule.virtual.board.config import ALL, BoardConfig

_log: Final = logging.getLogger(__name__)

VOLTS: Final = 5.0  # of the board's supply

Amperes = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the lab, which is ready when its `files` exist."""

    name: str
    argv: tuple[str, ...]
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Emulator:
    """An emulated instrument, in one of three ways.

    One that is asked for readings has `serve`: it gets the board's current by the monotonic clock, and a file beside
    which it may have others, and answers in the body, at the address that it yields. It measures at 5 V. One that has a
    `program` of its own gives its board's command line, from the folder of the lab's devices; with `serial` its user
    opens a serial port of the exporter. One in its user's process has an `address` (`{number}` is the board's), and
    `variables` for this process.
    """

    serve: Callable[[Amperes, Path], AbstractContextManager[str]] | None = None
    program: Callable[[BoardConfig, Path], Program] | None = None
    serial: bool = False
    address: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def emulator_of(name: str) -> Emulator:
    """The emulator of an instrument of this name."""
    emulator: Emulator = INSTRUMENTS[name].emulator()
    return emulator


def instruments_of(board: BoardConfig) -> list[str]:
    """The names of the instruments beside a board. `all` are those that have no wire of their own to it.

    Of these a package's is left out, with a warning, if its emulator cannot be loaded. Raises ConfigError if one that
    is named cannot.
    """
    names = set(board.instruments)
    if ALL in names:
        emulated = {row.name for row in INSTRUMENTS.values() if row.emulator_module}
        names = names - {ALL} | {name for name in emulated if _needs_no_wire(name)}
    return sorted(names)


@cache
def _needs_no_wire(name: str) -> bool:
    try:
        return emulator_of(name).program is None
    except ConfigError as error:
        _log.warning("%s; the virtual lab goes without it", error.what)
        return False


def program_of(name: str, board: BoardConfig, devices: Path) -> Program | None:
    """The program of an emulated instrument beside a board, if it has one."""
    emulator = emulator_of(name)
    if emulator.program is not None:
        return emulator.program(board, devices)
    files = {"--address-file": devices / name}
    return None if emulator.serve is None else module_program(name, "asked", files, name, *feed(devices))


def feed(devices: Path) -> tuple[str, str]:
    """The option with which an emulator gets what its board draws."""
    return "--feed", str(devices / "feed")


def module_program(name: str, module: str, files: Mapping[str, Path], *more: str) -> Program:
    """A module of this folder as a program, with options that name the files that it makes."""
    words = (word for option, file in files.items() for word in (option, str(file)))
    return Program(
        name, (sys.executable, "-m", f"fsjoule.virtual.instruments.{module}", *more, *words), tuple(files.values())
    )
