"""Input for a board whose time stands still while it waits for it: lines, as the contents of a card's sectors.

A serial line brings a character whenever it comes, somewhere between two instructions of the guest, and no two runs are
alike then. A card is read when the guest asks for it, and while QEMU waits for the answer not one instruction passes.
So the guest's login reads its lines from a second card, whose image is served from here (`nbd`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.virtual.disks.nbd import Kind, Line, Server

# QEMU's cards have a power of two. Where a kernel looks for partitions there is nothing.
SIZE_BYTES: Final = 1 << 20
LINE_OFFSET: Final = SIZE_BYTES // 2
LINE_BYTES: Final = 4096

_INTERRUPT: Final = 0x03
_ERASE: Final = (0x08, 0x7F)


@dataclass(frozen=True, slots=True)
class Typed:
    """What becomes of what was typed: `echo` is for whoever types, `to_uart` for the board's serial line."""

    echo: bytes
    to_uart: bytes


class Mailbox:
    """Lines on their way to the board. `type` belongs to one thread.

    `on_waiting` is called, from another thread, when the board begins to wait.
    """

    def __init__(self, path: Path) -> None:
        """Listen at a socket, to which one QEMU after the other connects. Raises LabError."""
        self.on_waiting: Callable[[], None] = lambda: None
        self._news = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._typing = bytearray()
        self._waiting = False
        self._server = Server(path, SIZE_BYTES, self._answer, on_hang_up=self._forget_lines)

    @property
    def waiting(self) -> bool:
        """Whether the board waits for a line now, its time standing still."""
        return self._waiting

    def type(self, typed: bytes, prompt: bytes) -> Typed:
        """Take what somebody types, as a terminal's line editor does; `prompt` is the board's last line so far.

        An empty line does not reach the board: whoever sends one to see whether somebody is there gets the prompt
        again, and the board's time does not depend on how often. Ctrl-C interrupts what runs on the board, by the
        serial line and so at a moment that no other run has.
        """
        echo, to_uart = bytearray(), bytearray()
        for byte in typed:
            if byte in b"\r\n":
                echo += b"\r\n" if self._enter() else b"\r\n" + prompt
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
        """Hang up."""
        self._server.close()

    def _enter(self) -> bool:
        """Send the line that was typed, unless it is empty."""
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
        """What was typed for a QEMU that is gone is for no other; whoever waits looks whether its QEMU is."""
        with self._news:
            self._lines.clear()
            self._news.notify_all()

    # ------------------------------------------------------------------------------------------------------ serving

    def _answer(self, qemu: Line) -> None:
        """Reads of the line's place get the next line, from its first sector on; all else reads as zeros."""
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
                raise EOFError("another board is there")
            self._waiting = False
            return self._lines.popleft()
