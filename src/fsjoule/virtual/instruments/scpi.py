"""A supply that speaks SCPI over a TCP socket, as many on a bench do, with a load that is known."""

from __future__ import annotations

import socketserver
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fsjoule.virtual.instruments.emulator import VOLTS, Amperes, Emulator
from fsjoule.virtual.instruments.terminal import served

# A supply's converter integrates over a cycle of the mains.
_CYCLE_S: Final = 0.02
_PARTS: Final = 20

IDENTITY: Final = "fsjoule,emulated supply,SIM-4711,1.0"


@dataclass
class Supply:
    """What the emulated supply gives, how long it takes for an answer, and answers that are others.

    `amperes` is a number, or a function that takes the time of a reading and returns it.
    """

    volts: float = 5.0
    amperes: float | Callable[[], float] = 0.25
    identity: str = IDENTITY
    delay_s: float = 0.0
    answers: dict[str, str] = field(default_factory=dict[str, str])
    silent: bool = False
    port: int = 0

    @property
    def address(self) -> str:
        return f"visa:TCPIP0::127.0.0.1::{self.port}::SOCKET"

    def answer(self, question: str) -> str:
        time.sleep(self.delay_s)
        if question in self.answers:
            return self.answers[question]
        match question:
            case "*IDN?":
                return self.identity
            case "MEASure:VOLTage?":
                return f"{self.volts:.6E}"
            case "MEASure:CURRent?":
                return f"{self.amperes() if callable(self.amperes) else self.amperes:.6E}"
            case _:
                raise ValueError(f"the emulated supply does not know {question!r}")


@contextmanager
def supply(**settings: object) -> Generator[Supply]:
    """A running supply on a free port of this computer."""
    emulated = Supply(**settings)  # pyright: ignore[reportArgumentType] - of its own fields

    class ScpiConversation(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                if not emulated.silent:
                    self.wfile.write(f"{emulated.answer(line.decode().strip())}\n".encode())

    with served(ScpiConversation) as emulated.port:
        yield emulated


@contextmanager
def _serve(amperes: Amperes, _beside: Path) -> Generator[str]:
    def over_a_cycle() -> float:
        begin_s = time.monotonic()
        time.sleep(_CYCLE_S)
        return sum(amperes(begin_s + (part + 0.5) / _PARTS * _CYCLE_S) for part in range(_PARTS)) / _PARTS

    with supply(volts=VOLTS, amperes=over_a_cycle) as emulated:
        yield emulated.address


EMULATOR: Final = Emulator(serve=_serve)
