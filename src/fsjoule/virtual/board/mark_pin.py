"""The wire from a GPIO of the board to the meter's mark pin."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from fsjoule.host.realtime import prefer_this_thread
from fsjoule.virtual.board.config import MarkGpioConfig
from fsjoule.virtual.board.mark_wire import MarkWire

_log: Final = logging.getLogger("fsjoule.virtual.board")
_LEVELS: Final = {"raise": b"1", "lower": b"0"}


class MarkPin:
    """Passes on each new level of the board's pin at once, as QEMU's test protocol tells it."""

    def __init__(self, gpio: MarkGpioConfig, meter_tty: Path, also: Sequence[Path] = ()) -> None:
        self._gpio = gpio
        self._wire = MarkWire(meter_tty, also)

    @property
    def passed_edges(self) -> int:
        return self._wire.passed_bytes

    def connect(self, protocol: socket.socket) -> None:
        """Pass on the levels of a QEMU that was just started, in an own thread, until it ends."""
        threading.Thread(target=self._run, args=(protocol,), name="mark pin", daemon=True).start()

    def close(self) -> None:
        self._wire.close()

    def _run(self, protocol: socket.socket) -> None:
        """A level is a line such as `IRQ raise 17`, and only a changed one is told. A board without power has 0 V."""
        prefer_this_thread()
        with protocol, protocol.makefile() as lines, suppress(OSError):
            protocol.sendall(f"irq_intercept_out {self._gpio.controller}\n".encode())
            for line in lines:
                match line.split():
                    case ["IRQ", level, number] if int(number) == self._gpio.line:
                        self._wire.carry(_LEVELS[level])
                    case ["FAIL", *_]:
                        _log.error("QEMU has no outputs at %s, which mark_gpio names", self._gpio.controller)
                    case _:
                        pass
        self._wire.carry(_LEVELS["lower"])
