"""Input for a board whose time stops while it waits: lines, as the contents of a card's sectors.

A character on a serial line arrives at any moment between two instructions, so no two runs would be equal. But a card
is read when the guest asks for it, and while QEMU waits for the data, no instruction passes. So the guest's login reads
its lines from a second card, whose image is served here (`nbd`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.virtual.disks.nbd import Kind, Line, Server

# The size of a QEMU card is a power of two. The place for a partition table stays empty.
SIZE_BYTES: Final = 1 << 20
LINE_OFFSET: Final = SIZE_BYTES // 2
LINE_BYTES: Final = 4096

_INTERRUPT: Final = 0x03
_ERASE: Final = (0x08, 0x7F)


@dataclass(frozen=True, slots=True)
class Typed:
    """The result of typed input: `echo` goes back to the typist, `to_uart` to the board's serial line."""

    echo: bytes
    to_uart: bytes


class Mailbox:
    """Lines on their way to the board. Only one thread may call `type`. `on_waiting` is called from another thread."""

    def __init__(self, path: Path) -> None:
        """Listen on a socket, to which one QEMU at a time connects. Raises LabError."""
        self.on_waiting: Callable[[], None] = lambda: None
        self._news = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._typing = bytearray()
        self._waiting = False
        self._server = Server(path, SIZE_BYTES, self._answer, on_hang_up=self._forget_lines)

    @property
    def waiting(self) -> bool:
        """Whether the board waits for a line now, with its time stopped."""
        return self._waiting

    def type(self, typed: bytes, prompt: bytes) -> Typed:
        """Take typed input, like a terminal's line editor; `prompt` is the board's last line so far.

        An empty line does not reach the board. A client that sends one to find the prompt gets it again, unless the
        board is busy, and the board's time does not depend on the number of tries. Ctrl-C interrupts the board's
        program over the serial line, and so at a moment that no other run has.
        """
        echo, to_uart = bytearray(), bytearray()
        for byte in typed:
            if byte in b"\r\n":
                echo += b"\r\n" if self._enter() or self._lines or not self._waiting else b"\r\n" + prompt
            elif byte == _INTERRUPT:
                echo += b"^C\r\n" + prompt if self._waiting else b"^C"
                to_uart += b"" if self._waiting else bytes((byte,))
                self._forget()
            elif byte in _ERASE:
                echo += b"\b \b" if self._typing else b""
                del self._typing[-1:]
            elif len(self._typing) < LINE_BYTES - 1:
                echo.append(byte)
                self._typing.append(byte)
        return Typed(bytes(echo), bytes(to_uart))

    def close(self) -> None:
        self._server.close()

    def _enter(self) -> bool:
        """Send the typed line, unless it is empty."""
        line = bytes(self._typing)
        self._typing.clear()
        if not line.strip():
            return False
        with self._news:
            self._lines.append(line)
            self._news.notify_all()
        return True

    def _forget(self) -> None:
        self._typing.clear()
        self._forget_lines()

    def _forget_lines(self) -> None:
        """Drop input meant for a QEMU that has exited, and wake the waiter to check its QEMU."""
        with self._news:
            self._lines.clear()
            self._news.notify_all()

    # ------------------------------------------------------------------------------------------------------ serving

    def _answer(self, qemu: Line) -> None:
        """A read of the line's first sector gets the next line; everything else reads as zeros."""
        line = bytes(LINE_BYTES)
        for request in qemu.requests():
            data = b""
            if request.kind == Kind.READ:
                offset, size = request.offset, request.size
                if offset == LINE_OFFSET:
                    line = self._next_line(qemu).ljust(LINE_BYTES, b"\0")
                inside = LINE_OFFSET <= offset < LINE_OFFSET + LINE_BYTES
                data = line[offset - LINE_OFFSET :][:size].ljust(size, b"\0") if inside else bytes(size)
            qemu.reply(request, data)

    def _next_line(self, qemu: Line) -> bytes:
        with self._news:
            self._waiting = True
            self.on_waiting()
            self._news.wait_for(lambda: self._lines or not qemu.open)
            if not qemu.open:
                raise EOFError("another QEMU has connected")
            self._waiting = False
            return self._lines.popleft()
