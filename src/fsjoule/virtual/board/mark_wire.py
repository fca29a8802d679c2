"""The wire from the board's second UART, or from its console, to the meter's mark input."""

from __future__ import annotations

import os
import socket
import threading
import tty
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from fsjoule.host.realtime import prefer_this_thread

_CHUNK_BYTES: Final = 4096


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
