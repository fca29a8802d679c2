"""The wire from the board's second UART to the meter's mark input."""

from __future__ import annotations

import os
import socket
import threading
import tty
from contextlib import suppress
from pathlib import Path
from typing import Final

from fsjoule.virtual.board.realtime import prefer_this_thread

_CHUNK_BYTES: Final = 4096


class MarkWire:
    """Passes on the board's output at once. Without a meter it is lost, as on a wire."""

    def __init__(self, meter_tty: Path | None) -> None:
        """Without a tty the marks reach the meter another way, and are only read here."""
        self._path = meter_tty
        self._fd: int | None = None
        self.passed_bytes = 0
        self.dropped_bytes = 0

    def connect(self, line: socket.socket) -> None:
        """Pass on this line's data, in its own thread, until its other end closes."""
        threading.Thread(target=self._run, args=(line,), name="mark wire", daemon=True).start()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _run(self, line: socket.socket) -> None:
        prefer_this_thread()
        with line, suppress(OSError):
            while data := line.recv(_CHUNK_BYTES):
                # The meter's tty ends with its meter: a second try opens the tty of a new one.
                if self._write(data) or self._write(data):
                    self.passed_bytes += len(data)
                else:
                    self.dropped_bytes += len(data)

    def _write(self, data: bytes) -> bool:
        if self._path is None:
            return True
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
                with suppress(OSError):
                    tty.setraw(self._fd)
            return os.write(self._fd, data) == len(data)
        except OSError:
            self.close()
            return False
