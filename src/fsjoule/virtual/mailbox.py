"""Input for a board whose time stands still while it waits for it: lines, as the contents of a card's sectors.

A serial line brings a character whenever it comes, somewhere between two instructions of the guest, and no two runs are
alike then. A card is read when the guest asks for it, and while QEMU waits for the answer not one instruction passes.
So the guest's login reads its lines from a second card, whose image is served from here over QEMU's network block
device protocol (NBD, docs/proto.md of the NetworkBlockDevice project: fixed newstyle, simple replies).
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError

# QEMU's cards have a power of two. Where a kernel looks for partitions there is nothing.
SIZE_BYTES: Final = 1 << 20
LINE_OFFSET: Final = SIZE_BYTES // 2
LINE_BYTES: Final = 4096

_HELLO: Final = struct.pack(">8s8sH", b"NBDMAGIC", b"IHAVEOPT", 3)  # fixed newstyle, no zeroes
_OPTION: Final = struct.Struct(">8sII")
_OPTION_REPLY: Final = struct.Struct(">QIII")
_OPTION_REPLY_MAGIC: Final = 0x3E889045565A9
_EXPORT_NAME, _INFO, _GO = 1, 6, 7
_ACK, _INFO_REPLY, _UNSUPPORTED = 1, 3, (1 << 31) + 1
_EXPORT: Final = struct.pack(">QH", SIZE_BYTES, 1)  # flags: has flags
_REQUEST: Final = struct.Struct(">IHH8sQI")
_READ, _WRITE, _DISCONNECT = 0, 1, 2
_REPLY: Final = struct.pack(">II", 0x67446698, 0)

_INTERRUPT: Final = 0x03
_ERASE: Final = (0x08, 0x7F)
_STOP_TIMEOUT_S: Final = 5.0

_log: Final = logging.getLogger(__name__)


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
        self._connection: socket.socket | None = None
        self._waiting = False
        self._path = path
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(path))
        except OSError as error:
            self._listener.close()
            raise LabError(f"the mailbox {path} cannot be made: {error}") from error
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._accept, name="mailbox", daemon=True)
        self._thread.start()

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
        with self._news:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._hang_up()
        self._thread.join(_STOP_TIMEOUT_S)
        self._path.unlink(missing_ok=True)

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
        with self._news:
            self._lines.clear()

    # ------------------------------------------------------------------------------------------------------ serving

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._news:
                # The QEMU before is gone, and what was typed for it.
                self._hang_up()
                self._lines.clear()
                self._connection = connection
            threading.Thread(target=self._serve, args=(connection,), name="mailbox line", daemon=True).start()

    def _hang_up(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            self._connection = None
            self._news.notify_all()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                _negotiate(connection)
                self._answer(connection)
        except (OSError, EOFError) as error:
            _log.debug("the mailbox's line ended: %s", error)

    def _answer(self, connection: socket.socket) -> None:
        """Reads of the line's place get the next line, from its first sector on; all else reads as zeros."""
        line = bytes(LINE_BYTES)
        while True:
            _, _, kind, cookie, offset, size = _REQUEST.unpack(_received(connection, _REQUEST.size))
            data = b""
            if kind == _DISCONNECT:
                return
            if kind == _WRITE:
                _received(connection, size)
            if kind == _READ:
                if offset == LINE_OFFSET:
                    line = self._next_line(connection).ljust(LINE_BYTES, b"\0")
                inside = LINE_OFFSET <= offset < LINE_OFFSET + LINE_BYTES
                data = line[offset - LINE_OFFSET :][:size].ljust(size, b"\0") if inside else bytes(size)
            connection.sendall(_REPLY + cookie + data)

    def _next_line(self, connection: socket.socket) -> bytes:
        with self._news:
            self._waiting = True
            self.on_waiting()
            self._news.wait_for(lambda: self._lines or self._connection is not connection)
            if self._connection is not connection:
                raise EOFError("another board is there")
            self._waiting = False
            return self._lines.popleft()


def _negotiate(connection: socket.socket) -> None:
    connection.sendall(_HELLO)
    _received(connection, 4)
    while True:
        _, option, size = _OPTION.unpack(_received(connection, _OPTION.size))
        _received(connection, size)
        if option == _EXPORT_NAME:
            connection.sendall(_EXPORT)
            return
        if option not in (_INFO, _GO):
            connection.sendall(_OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, _UNSUPPORTED, 0))
            continue
        export = struct.pack(">H", 0) + _EXPORT
        connection.sendall(_OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, _INFO_REPLY, len(export)) + export)
        connection.sendall(_OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, _ACK, 0))
        if option == _GO:
            return


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise EOFError("QEMU has closed the mailbox")
        data += chunk
    return data
