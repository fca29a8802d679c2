"""Orders to the virtual board: over the outlet's HTTP server and the mux's control socket, to the main thread.

The outlet is labgrid's NetworkPowerPort, model `rest`, and tells the board's status as JSON. The mux's control socket
is for `usbsdmux`: `get` or a position; it answers `ok <position>` or `error <text>`.
"""

from __future__ import annotations

import json
import logging
import queue
import socket
import socketserver
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import FsjouleError, LabError
from fsjoule.host.peer import is_ours
from fsjoule.virtual.board.config import OutletConfig
from fsjoule.virtual.disks.card import CardPosition

_log: Final = logging.getLogger("fsjoule.virtual.board")
_BODY_LIMIT_BYTES: Final = 16
_REQUEST_TIMEOUT_S: Final = 10.0
_PROFILE: Final = "/profile"
_MUX_LINE_LIMIT_BYTES: Final = 64
_MUX_TIMEOUT_S: Final = 5.0
_WATCH_INTERVAL_S: Final = 0.1
_ORDER_TIMEOUT_S: Final = 60.0
_PATIENCE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class OutletActions:
    """The outlet's actions on the board, called from the server's threads."""

    get_power: Callable[[], bool]
    set_power: Callable[[bool], None]
    status: Callable[[], dict[str, Any]]
    set_seed: Callable[[int], None]
    profile_next: Callable[[], None]
    take_profile: Callable[[str], bytes | None]
    record_next: Callable[[], None]
    plug_usb: Callable[[bool], None]
    reset: Callable[[], None]


class Outlet:
    """`GET` and `PUT` of `/outlet/{index}`: `1` is on, `0` is off. `GET /status` has details.

    `PUT /seed` sets the seed of the board's random choices. After `PUT /profile` the next power-on of a board in guest
    time counts instructions, and `GET /profile/{window}` gives a window's counts, once. After `PUT /writes` the next
    power-on of another board records its writes to the card. Faults for tests: `PUT /usb`
    plugs the USB cable in (`1`) or pulls it out (`0`), `PUT /reset` presses the reset button.
    """

    def __init__(self, config: OutletConfig, actions: OutletActions) -> None:
        """Listen. Raises LabError if the port is taken."""
        try:
            self._server = _OutletServer((config.address, config.port), _OutletHandler)
        except OSError as error:
            raise LabError(
                f"the outlet cannot listen on {config.address} port {config.port}: {error}",
                hint="set outlet.port = 0 to take a free port",
            ) from error
        self._server.actions = actions
        self._server.outlet_path = f"/outlet/{config.index}"
        self.base_url = f"http://{config.address}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="outlet", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _OutletServer(ThreadingHTTPServer):
    daemon_threads = True
    actions: OutletActions
    outlet_path: str

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401 - the base class's
        """A loopback port is open to every account of the computer: this board is one user's."""
        return not self.on_loopback or is_ours(client_address, request.getsockname())

    @property
    def on_loopback(self) -> bool:
        return str(self.server_address[0]).startswith("127.")


class _OutletHandler(BaseHTTPRequestHandler):
    server: _OutletServer  # pyright: ignore[reportIncompatibleVariableOverride] - narrowed: only it makes handlers
    timeout = _REQUEST_TIMEOUT_S

    def parse_request(self) -> bool:
        """Refuse what a browser sends for a page whose name leads here: such a page may read the answers."""
        if not super().parse_request():
            return False
        host, port = self.server.server_address[:2]
        if self.server.on_loopback and self.headers.get("Host") not in (f"{host!s}:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        return True

    def do_GET(self) -> None:
        if self.path == self.server.outlet_path:
            self._answer(HTTPStatus.OK, "1" if self.server.actions.get_power() else "0")
        elif self.path == "/status":
            self._answer(HTTPStatus.OK, json.dumps(self.server.actions.status()), "application/json")
        elif self.path.startswith(f"{_PROFILE}/"):
            self._give_profile(self.path.removeprefix(f"{_PROFILE}/"))
        else:
            self._answer(HTTPStatus.NOT_FOUND, f"no such outlet; this one is {self.server.outlet_path}\n")

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "")
        body = self.rfile.read(min(int(length), _BODY_LIMIT_BYTES)) if length.isdecimal() else b""
        if self.path == "/seed":
            self._set_seed(body)
        elif self.path == _PROFILE:
            self._order(self.server.actions.profile_next)
        elif self.path == "/writes":
            self._order(self.server.actions.record_next)
        elif self.path == "/reset":
            self._order(self.server.actions.reset)
        elif self.path not in (self.server.outlet_path, "/usb"):
            self._answer(HTTPStatus.NOT_FOUND, f"no such outlet; this one is {self.server.outlet_path}\n")
        elif body.strip() not in (b"0", b"1"):
            self._answer(HTTPStatus.BAD_REQUEST, "the outlet expects 0 or 1\n")
        else:
            act = self.server.actions.plug_usb if self.path == "/usb" else self.server.actions.set_power
            self._order(lambda: act(body.strip() == b"1"))

    def _set_seed(self, body: bytes) -> None:
        if body.isdigit():
            self._order(lambda: self.server.actions.set_seed(int(body)))
        else:
            self._answer(HTTPStatus.BAD_REQUEST, "a seed is a number\n")

    def _give_profile(self, window: str) -> None:
        profile = self.server.actions.take_profile(window)
        if profile is None:
            self._answer(HTTPStatus.NOT_FOUND, "there is no profile of that window\n")
        else:
            self._send(HTTPStatus.OK, profile, "application/octet-stream")

    def _order(self, order: Callable[[], None]) -> None:
        try:
            order()
        except FsjouleError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error}\n")
        else:
            self._answer(HTTPStatus.OK, "")

    def _answer(self, code: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        self._send(code, text.encode(), f"{kind}; charset=utf-8")

    def _send(self, code: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        _log.debug(format, *args)


class MuxControl:
    """Listens on a unix socket. `get` and `move` are called from its threads."""

    def __init__(self, path: Path, get: Callable[[], CardPosition], move: Callable[[CardPosition], None]) -> None:
        """Listen on a claimed path. Raises LabError."""
        try:
            self._server = _MuxServer(str(path), _MuxHandler)
        except OSError as error:
            raise LabError(f"the control socket {path} cannot be made: {error}") from error
        self._server.get, self._server.move = get, move
        self._path = path
        threading.Thread(target=self._server.serve_forever, name="mux control", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._path.unlink(missing_ok=True)


class _MuxServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    get: Callable[[], CardPosition]
    move: Callable[[CardPosition], None]


class _MuxHandler(socketserver.StreamRequestHandler):
    server: _MuxServer  # pyright: ignore[reportIncompatibleVariableOverride] - narrowed: only it makes handlers
    timeout = _MUX_TIMEOUT_S

    def handle(self) -> None:
        with suppress(OSError):
            asked = self.rfile.readline(_MUX_LINE_LIMIT_BYTES).decode(errors="replace").strip()
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


def claim_control_socket(path: Path) -> None:
    """Make the path usable: remove the socket of a dead board. Raises LabError if a living board uses it."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_MUX_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except OSError:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            return
    raise LabError(f"a virtual board is already running on {path}", hint="stop it first: fsjoule lab down")


class OrderQueue:
    """Runs orders of other threads in the main thread, which must start all processes."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[Callable[[], None], Future[None]] | None] = queue.SimpleQueue()

    def do(self, order: Callable[[], None], *, hurry: Callable[[], None] | None = None) -> None:
        """Run an order and wait for it. Raises its error, or LabError if it takes too long.

        If it does not begin soon, `hurry` is called: it ends the operation that the main thread waits for.
        """
        done: Future[None] = Future()
        self._orders.put((order, done))
        if hurry is not None:
            with suppress(TimeoutError):
                done.result(_PATIENCE_S)
                return
            hurry()
        try:
            done.result(_ORDER_TIMEOUT_S)
        except TimeoutError:
            raise LabError("the virtual board is busy", transient=True) from None

    def end(self, *_: object) -> None:
        """Make `serve` return. It is a signal handler."""
        self._orders.put(None)

    def serve(self, between: Callable[[], None]) -> None:
        """Carry out orders until `end`. It calls `between` after each order, and regularly without orders."""
        while True:
            with suppress(queue.Empty):
                item = self._orders.get(timeout=_WATCH_INTERVAL_S)
                if item is None:
                    return
                _carry_out(*item)
            between()


def _carry_out(order: Callable[[], None], done: Future[None]) -> None:
    try:
        order()
    except Exception as error:  # noqa: BLE001 - raised again in the thread that gave the order
        _log.warning("%s", error)
        done.set_exception(error)
    else:
        done.set_result(None)
