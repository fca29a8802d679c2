"""Serves disks over NBD (its docs/proto.md): fixed newstyle, one export, simple replies."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError

_HELLO: Final = struct.pack(">8s8sH", b"NBDMAGIC", b"IHAVEOPT", 3)  # fixed newstyle, no zeroes
_OPTION: Final = struct.Struct(">8sII")
_OPTION_REPLY: Final = struct.Struct(">QIII")
_OPTION_REPLY_MAGIC: Final = 0x3E889045565A9
_EXPORT_NAME, _INFO, _GO = 1, 6, 7
_ACK, _INFO_REPLY, _UNSUPPORTED = 1, 3, (1 << 31) + 1
_HAS_FLAGS, _TAKES_FLUSH, _TAKES_FUA, _TAKES_TRIM = 1, 4, 8, 32
_REQUEST: Final = struct.Struct(">IHH8sQI")
_FUA: Final = 1
_REPLY_MAGIC: Final = 0x67446698
_STOP_TIMEOUT_S: Final = 5.0

_log: Final = logging.getLogger(__name__)


class Kind(IntEnum):
    """Kinds of requests."""

    READ = 0
    WRITE = 1
    DISCONNECT = 2
    FLUSH = 3
    TRIM = 4


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `data` is for a write; with `durable` (FUA) it must be on the medium before the reply."""

    kind: int
    cookie: bytes
    offset: int
    size: int
    durable: bool
    data: bytes


class Line:
    """The connection of one client. It stays `open` until another client comes, or the server closes."""

    def __init__(self, connection: socket.socket) -> None:
        self.open = True
        self._connection = connection

    def requests(self) -> Iterator[Request]:
        """The client's requests until it disconnects. Raises OSError or EOFError when the connection ends."""
        while True:
            _, flags, kind, cookie, offset, size = _REQUEST.unpack(self._receive(_REQUEST.size))
            if kind == Kind.DISCONNECT:
                return
            data = self._receive(size) if kind == Kind.WRITE else b""
            yield Request(kind, cookie, offset, size, bool(flags & _FUA), data)

    def reply(self, request: Request, data: bytes = b"", *, error: int = 0) -> None:
        """Answer a request; `error` is an errno. Raises OSError."""
        self._connection.sendall(struct.pack(">II", _REPLY_MAGIC, error) + request.cookie + data)

    def negotiate(self, export: bytes) -> None:
        self._connection.sendall(_HELLO)
        self._receive(4)
        while True:
            _, option, size = _OPTION.unpack(self._receive(_OPTION.size))
            self._receive(size)
            if option == _EXPORT_NAME:
                self._connection.sendall(export)
                return
            if option not in (_INFO, _GO):
                self._connection.sendall(_OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, _UNSUPPORTED, 0))
                continue
            told = struct.pack(">H", 0) + export
            self._connection.sendall(_OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, _INFO_REPLY, len(told)) + told)
            self._connection.sendall(_OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, _ACK, 0))
            if option == _GO:
                return

    def hang_up(self) -> None:
        self.open = False
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._connection.recv(size - len(data))
            if not chunk:
                raise EOFError("the client is gone")
            data += chunk
        return bytes(data)


class Server:
    """Serves one export on a unix socket, to one client at a time: a new client replaces the old one."""

    def __init__(
        self,
        path: Path,
        size_bytes: int,
        serve: Callable[[Line], None],
        *,
        caches: bool = False,
        trims: bool = False,
        on_hang_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Listen. Raises LabError.

        `serve` answers a client's requests in its own thread. A disk that `caches` supports flushes and durable writes,
        one that `trims` takes discards. `on_hang_up` wakes `serve` up if it waits for anything but the client.
        """
        flags = _HAS_FLAGS | (_TAKES_FLUSH | _TAKES_FUA if caches else 0) | (_TAKES_TRIM if trims else 0)
        self._export = struct.pack(">QH", size_bytes, flags)
        self._path, self._serve, self._on_hang_up = path, serve, on_hang_up
        self._current: tuple[Line, threading.Thread] | None = None
        self._changing = threading.Lock()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(path))
        except OSError as error:
            self._listener.close()
            raise LabError(f"the socket {path} cannot be made: {error}") from error
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._accept, name=f"{path.name}: listening", daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        """Disconnect the client. Its earlier requests are done when this returns."""
        with self._changing:
            self._end_current()

    def close(self) -> None:
        """Disconnect the client and stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        self._thread.join(_STOP_TIMEOUT_S)
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._changing:
                self._end_current()
                line = Line(connection)
                thread = threading.Thread(
                    target=self._talk, args=(line, connection), name=f"{self._path.name}: client", daemon=True
                )
                self._current = line, thread
                thread.start()

    def _end_current(self) -> None:
        if self._current is None:
            self._on_hang_up()
            return
        line, thread = self._current
        self._current = None
        line.hang_up()
        self._on_hang_up()
        thread.join(_STOP_TIMEOUT_S)

    def _talk(self, line: Line, connection: socket.socket) -> None:
        try:
            with connection:
                line.negotiate(self._export)
                self._serve(line)
        except (OSError, EOFError) as error:
            _log.debug("%s: the client's line ended: %s", self._path.name, error)
