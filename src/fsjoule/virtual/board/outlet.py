"""The outlet's HTTP server: labgrid's NetworkPowerPort, model `rest`, and the board's status as JSON."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from fsjoule.errors import FsjouleError, LabError
from fsjoule.host.peer import is_ours
from fsjoule.virtual.board.config import OutletConfig

_log: Final = logging.getLogger(__name__)
_BODY_LIMIT_BYTES: Final = 16
_REQUEST_TIMEOUT_S: Final = 10.0
_PROFILE: Final = "/profile"


@dataclass(frozen=True, slots=True)
class OutletActions:
    """The outlet's actions on the board, called from the server's threads."""

    get_power: Callable[[], bool]
    set_power: Callable[[bool], None]
    status: Callable[[], dict[str, Any]]
    set_seed: Callable[[int], None]
    profile_next: Callable[[], None]
    take_profile: Callable[[str], bytes | None]
    plug_usb: Callable[[bool], None]
    reset: Callable[[], None]


class Outlet:
    """`GET` and `PUT` of `/outlet/{index}`: `1` is on, `0` is off. `GET /status` has details.

    `PUT /seed` sets the seed of the board's random choices. After `PUT /profile` the next power-on of a board in guest
    time counts instructions, and `GET /profile/{window}` gives a window's counts, once. Faults for tests: `PUT /usb`
    plugs the USB cable in (`1`) or pulls it out (`0`), `PUT /reset` presses the reset button.
    """

    def __init__(self, config: OutletConfig, actions: OutletActions) -> None:
        """Listen. Raises LabError if the port is taken."""
        try:
            self._server = _Server((config.address, config.port), _Handler)
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    actions: OutletActions
    outlet_path: str

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401 - the base class's
        """A loopback port is open to every account of the computer: this board is one user's."""
        return not self.on_loopback or is_ours(client_address, request.getsockname())

    @property
    def on_loopback(self) -> bool:
        return str(self.server_address[0]).startswith("127.")


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] - narrowed: only _Server makes handlers
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
