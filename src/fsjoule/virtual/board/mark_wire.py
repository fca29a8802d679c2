"""The wires to the meter's mark inputs: from the board's second UART, or its console, and from a GPIO to the pin."""

from __future__ import annotations

import logging
import os
import socket
import threading
import tty
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from fsjoule.host.clock import prefer_this_thread
from fsjoule.virtual.board.config import MarkGpioConfig

_CHUNK_BYTES: Final = 4096
_log: Final = logging.getLogger("fsjoule.virtual.board")
_LEVELS: Final = {"raise": b"1", "lower": b"0"}


class MarkWire:
    """Passes on the board's output at once. Without a meter it is lost, as on a wire."""

    def __init__(self, meter_tty: Path | None, also: Sequence[Path] = ()) -> None:
        """Without a tty the marks reach the meter another way, and are only read here. `also` are more listeners'."""
        self._path = meter_tty
        self._also = [MarkWire(path) for path in also]
        self._fd: int | None = None
        self.passed_bytes = 0
        self.dropped_bytes = 0

    def connect(self, line: socket.socket) -> None:
        """Pass on this line's data, in its own thread, until its other end closes."""
        threading.Thread(target=self._run, args=(line,), name="mark wire", daemon=True).start()

    def carry(self, data: bytes) -> None:
        """Pass on what the board said, for one thread at a time."""
        for each in self._also:
            each.carry(data)
        written = self._write(data)
        if written is None:
            # The meter's tty ends with its meter: a second try opens the tty of a new one.
            written = self._write(data) or 0
        self.passed_bytes += written
        self.dropped_bytes += len(data) - written

    def close(self) -> None:
        for each in self._also:
            each.close()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _run(self, line: socket.socket) -> None:
        prefer_this_thread()
        with line, suppress(OSError):
            while data := line.recv(_CHUNK_BYTES):
                self.carry(data)

    def _write(self, data: bytes) -> int | None:
        """The number of bytes that the meter took; None if its tty is gone."""
        if self._path is None:
            return len(data)
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
                with suppress(OSError):
                    tty.setraw(self._fd)
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0  # a wire does not wait
        except OSError:
            self.close()
            return None


class MarkPin:
    """The wire from a GPIO of the board to the meter's mark pin.

    It passes on each new level of the board's pin at once, as QEMU's test protocol tells it.
    """

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
