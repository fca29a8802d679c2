"""Byte streams from a labgrid serial port: over the network as ser2net serves it, or a local tty.

pyserial's own RFC 2217 client hands over byte by byte and negotiates what a meter does not need; here the telnet layer
is taken off and every option but a clean 8-bit line is declined. ser2net sets the speed that the exporter says.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol, Self

import serial

_CONNECT_TIMEOUT_S: Final = 2.0
_READ_BYTES: Final = 65536

_IAC: Final = 255
_SE: Final = 240
_SB: Final = 250
_WILL, _WONT, _DO, _DONT = 251, 252, 253, 254
_BINARY: Final = 0


class Stream(Protocol):
    """Bytes from the meter."""

    def read(self, timeout_s: float) -> bytes:
        """What has arrived, after at most `timeout_s`. Raises OSError when the other side is gone."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class TelnetDecoder:
    """Takes the telnet layer (RFC 854) off a byte stream that may be cut anywhere. It does no I/O."""

    def __init__(self) -> None:
        self._pending = b""
        self._in_subnegotiation = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The payload in `data`, and what to answer to the options asked for or offered in it."""
        data, self._pending = self._pending + data, b""
        payload, answer = bytearray(), bytearray()
        at = 0
        while at < len(data):
            escape = data.find(_IAC, at)
            end = len(data) if escape < 0 else escape
            if not self._in_subnegotiation:
                payload += data[at:end]
            if escape < 0:
                break
            size = self._command(data[escape : escape + 3], payload, answer)
            if size == 0:
                self._pending = data[escape:]
                break
            at = escape + size
        return bytes(payload), bytes(answer)

    def _command(self, piece: bytes, payload: bytearray, answer: bytearray) -> int:
        """Handle a command that begins with IAC. Returns its size, or 0 if it is not complete."""
        if len(piece) < 2:  # noqa: PLR2004 - IAC and a command
            return 0
        command = piece[1]
        if command in (_WILL, _WONT, _DO, _DONT):
            if len(piece) < 3:  # noqa: PLR2004 - with an option
                return 0
            answer += _answer(command, piece[2])
            return 3
        if command in (_SB, _SE):
            self._in_subnegotiation = command == _SB
        elif command == _IAC and not self._in_subnegotiation:
            payload.append(_IAC)
        return 2


def _answer(command: int, option: int) -> bytes:
    if command == _WILL:
        return bytes((_IAC, _DO if option == _BINARY else _DONT, option))
    if command == _DO:
        return bytes((_IAC, _WILL if option == _BINARY else _WONT, option))
    return b""  # what is off stays off


class NetworkStream:
    """A port that ser2net serves. `telnet` is false for one served raw."""

    def __init__(self, host: str, port: int, *, telnet: bool) -> None:
        self._socket = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S)
        self._decoder = TelnetDecoder() if telnet else None

    def read(self, timeout_s: float) -> bytes:
        """See Stream."""
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            return b""
        if not data:
            raise ConnectionError("ser2net has closed the connection")
        if self._decoder is None:
            return data
        payload, answer = self._decoder.feed(data)
        if answer:
            self._socket.sendall(answer)
        return payload

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class TtyStream:
    """A serial port of this computer. pyserial's SerialException is an OSError."""

    def __init__(self, path: str, speed: int) -> None:
        self._serial = serial.Serial(path, speed)

    def read(self, timeout_s: float) -> bytes:
        """See Stream."""
        self._serial.timeout = timeout_s
        return self._serial.read(1) + self._serial.read(self._serial.in_waiting)

    def close(self) -> None:
        """Close the port."""
        self._serial.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
