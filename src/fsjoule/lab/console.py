"""The board's console: a record of its output, and pyserial's network client without needless negotiation."""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Final

import serial.rfc2217
from labgrid.driver import SerialDriver
from labgrid.step import steps

from fsjoule.lab.checked_line import TRAFFIC
from fsjoule.model.power_on import ConsoleLine

_KEPT_BYTES: Final = 256 * 1024
# A read that takes longer has waited for its first byte.
_AT_ONCE_S: Final = 1e-3
# Colours and cursor movements, which a shell's line editor and some boot loaders send; a character that is taken back.
_ESCAPES: Final = re.compile(r"[^\n]\x08|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]")


class ConsoleRecorder:
    """Keeps the last 256 KiB that came over one console."""

    def __init__(self, console: object) -> None:
        self._console = console
        self._chunks: deque[bytes] = deque()
        self._arrivals: deque[tuple[float, float]] = deque()
        self._read_s = 0.0
        self._size_bytes = 0
        self.received_bytes = 0
        steps.subscribe(self._notice)

    def clear(self) -> None:
        self._chunks.clear()
        self._arrivals.clear()
        self._size_bytes = self.received_bytes = 0

    @property
    def is_whole(self) -> bool:
        """Whether all that came is kept."""
        return self.received_bytes == self._size_bytes

    def text(self) -> str:
        """The kept output, without escape sequences; lines end with LF."""
        return _ESCAPES.sub("", b"".join(self._chunks).decode(errors="replace")).replace("\r", "")

    def lines(self) -> tuple[ConsoleLine, ...]:
        """The kept lines, each with the time of its first byte; the last one need not have its end yet."""
        lines: list[tuple[bytes, float, float]] = []
        open_line = False
        for chunk, (at_s, late_s) in zip(self._chunks, self._arrivals, strict=True):
            *ended, rest = chunk.split(b"\n")
            for piece in [*ended, *([rest] if rest else [])]:
                if open_line:
                    lines[-1] = (lines[-1][0] + piece, *lines[-1][1:])
                else:
                    lines.append((piece, at_s, late_s))
                open_line = False
            open_line = bool(rest)
        texts = (_ESCAPES.sub("", text.decode(errors="replace")).replace("\r", "") for text, _, _ in lines)
        return tuple(ConsoleLine(text, *times) for text, (_, *times) in zip(texts, lines, strict=True))

    def tail(self, lines: int = 20) -> list[str]:
        """The last lines, without what only the shell's own checks need."""
        said = TRAFFIC.sub("", self.text())
        return [line.rstrip() for line in said.splitlines() if line.strip()][-lines:]

    def _notice(self, event: Any) -> None:  # noqa: ANN401 - a StepEvent, which has no types
        step = event.step
        if step.tag != "console" or step.title != "read" or step.source is not self._console:
            return
        data = event.data.get("result")
        if event.data.get("state") == "stop":
            self._take(data or b"", event.ts, event.data.get("duration", 0.0))

    def _take(self, data: bytes, now_s: float, took_s: float) -> None:
        # What came while nobody read is there at once: at any time since the last read, which took all that was there.
        late_s = now_s - self._read_s if took_s < _AT_ONCE_S else 0.0
        self._read_s = now_s
        if not data:
            return
        self._chunks.append(data)
        self._arrivals.append((now_s, late_s))
        self._size_bytes += len(data)
        self.received_bytes += len(data)
        while self._size_bytes > _KEPT_BYTES:
            self._size_bytes -= len(self._chunks.popleft())
            self._arrivals.popleft()


class SteadySerial(serial.rfc2217.Serial):
    """A port that negotiates its line settings once, when it is opened."""

    def close(self) -> None:
        """Close the port and its socket, which pyserial leaves to the garbage collector if the other side is gone."""
        connection = self._socket
        super().close()
        if connection is not None:
            connection.close()

    @property
    def timeout(self) -> float | None:
        return self._timeout

    @timeout.setter
    def timeout(self, timeout: float | None) -> None:
        self._timeout = timeout


def steady(console: object) -> None:
    """Give an inactive SerialDriver the steady client, if it has a network port."""
    if isinstance(console, SerialDriver) and type(console.serial) is serial.rfc2217.Serial:
        console.serial = SteadySerial()
