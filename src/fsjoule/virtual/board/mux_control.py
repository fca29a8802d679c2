"""The mux's control socket for `usbsdmux`: `get` or a position; answers `ok <position>` or `error <text>`."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from fsjoule.errors import FsjouleError, LabError
from fsjoule.virtual.disks.card import CardPosition

_log: Final = logging.getLogger(__name__)
_LINE_LIMIT_BYTES: Final = 64
_REQUEST_TIMEOUT_S: Final = 5.0


class MuxControl:
    """Listens on a unix socket. `get` and `move` are called from its threads."""

    def __init__(self, path: Path, get: Callable[[], CardPosition], move: Callable[[CardPosition], None]) -> None:
        """Listen on a claimed path. Raises LabError."""
        try:
            self._server = _Server(str(path), _Handler)
        except OSError as error:
            raise LabError(f"the control socket {path} cannot be made: {error}") from error
        self._server.get, self._server.move = get, move
        self._path = path
        threading.Thread(target=self._server.serve_forever, name="mux control", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    get: Callable[[], CardPosition]
    move: Callable[[CardPosition], None]


class _Handler(socketserver.StreamRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] - narrowed: only _Server makes handlers
    timeout = _REQUEST_TIMEOUT_S

    def handle(self) -> None:
        with suppress(OSError):
            asked = self.rfile.readline(_LINE_LIMIT_BYTES).decode(errors="replace").strip()
            self.wfile.write(self._answer(asked).encode() + b"\n")

    def _answer(self, asked: str) -> str:
        try:
            if asked != "get":
                self.server.move(CardPosition(asked))
            return f"ok {self.server.get()}"
        except ValueError:
            return f"error unknown position {asked!r}"
        except FsjouleError as error:
            _log.warning("mux to %s: %s", asked, error.what)
            return "error " + " ".join(str(error).split())


def claim(path: Path) -> None:
    """Make the path usable: remove the socket of a dead board. Raises LabError if a living board uses it."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_REQUEST_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except OSError:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            return
    raise LabError(f"a virtual board is already running on {path}", hint="stop it first: fsjoule lab down")
