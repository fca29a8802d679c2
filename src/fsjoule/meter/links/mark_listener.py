"""Listens to a board's mark line at a serial port of the host's, for instruments without an input for marks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from fsjoule.errors import MeterError
from fsjoule.host.clock import prefer_this_thread
from fsjoule.meter.links.streams import Stream

_READ_S: Final = 0.1
_PATIENCE_S: Final = 2.0
# As fsjoule's own meter takes them.
_LONGEST: Final = 16
_HINT: Final = "is the line's serial adapter plugged in, and does no other program read it?"


class MarkListener:
    """Calls `heard` with the text of each line when it has arrived, from construction to `close`.

    Raises MeterError if the port cannot be opened. Lines that are too long, or no text, are noise and left out.
    """

    def __init__(self, open_stream: Callable[[], Stream], heard: Callable[[str], object]) -> None:
        try:
            self._stream = open_stream()
        except OSError as error:
            raise MeterError(f"the mark line cannot be opened: {error}", transient=True, hint=_HINT) from error
        self._heard = heard
        self._closing = threading.Event()
        self._trouble: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="fsjoule-mark-line", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Raises MeterError if the line was lost before."""
        self._closing.set()
        self._thread.join(timeout=_PATIENCE_S)
        self._stream.close()
        if self._trouble is not None:
            raise MeterError(f"the mark line was lost: {self._trouble}", transient=True, hint=_HINT)

    def _run(self) -> None:
        prefer_this_thread()
        rest = b""
        while not self._closing.is_set():
            try:
                rest += self._stream.read(_READ_S)
            except OSError as error:
                self._trouble = error
                return
            *lines, rest = rest.replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                if 0 < len(line) <= _LONGEST and line.isascii() and line.decode().isprintable():
                    self._heard(line.decode())
            rest = rest[-_LONGEST - 1 :]
