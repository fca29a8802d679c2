"""QEMU's machine protocol over a connected socket, as far as a board needs it: one command at a time."""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Final, cast

from fsjoule.errors import LabError

_CHUNK_BYTES: Final = 65536
_LEFT_TIMEOUT_S: Final = 1.0


class QmpError(LabError):
    """QEMU refused a command, does not answer, or is gone."""


class Qmp:
    """A session in command mode, for one thread."""

    def __init__(self, connection: socket.socket, *, timeout_s: float) -> None:
        """Do the handshake. Raises QmpError after the time limit."""
        self._connection = connection
        self._buffer = b""
        self._receive(time.monotonic() + timeout_s)
        self.execute("qmp_capabilities", timeout_s=timeout_s)

    def execute(self, command: str, *, timeout_s: float = 5.0, **arguments: str | bool) -> Any:  # noqa: ANN401 - JSON
        """Run a command. Returns its result. Raises QmpError."""
        deadline = time.monotonic() + timeout_s
        message = {"execute": command, "arguments": {key.replace("_", "-"): value for key, value in arguments.items()}}
        try:
            self._connection.settimeout(timeout_s)
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise QmpError(f"QEMU does not accept the command {command}: {error}") from error
        while True:
            answer = self._receive(deadline)
            if "error" in answer:
                raise QmpError(f"QEMU refuses {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def last_event(self, name: str) -> dict[str, Any] | None:
        """The data of the last unread event of this name from a QEMU that has ended; None without one."""
        found: dict[str, Any] | None = None
        while True:
            try:
                message = self._receive(time.monotonic() + _LEFT_TIMEOUT_S)
            except QmpError:
                return found
            if message.get("event") == name:
                found = message["data"]

    def close(self) -> None:
        self._connection.close()

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise QmpError("QEMU does not answer its control socket in time", transient=True)
            self._connection.settimeout(remaining_s)
            try:
                chunk = self._connection.recv(_CHUNK_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                raise QmpError(f"QEMU's control socket broke: {error}") from error
            if not chunk:
                raise QmpError("QEMU ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return cast(dict[str, Any], json.loads(line))
