"""Byte streams to a meter: over the network, as ser2net serves it, or from a terminal of this computer.

pyserial's own RFC 2217 client reads byte by byte and negotiates options that a meter does not need. This one strips
telnet and declines every option but a clean 8-bit line. ser2net sets the speed that the exporter tells it.

Two programs that read one terminal steal bytes from each other, so the processes that have one open are told.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import stat
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

import serial

from fsjoule.errors import ConfigError, MeterError
from fsjoule.meter.instruments import addresses

SPEED: Final = 1_000_000
_CONNECT_TIMEOUT_S: Final = 2.0
_WRITE_TIMEOUT_S: Final = 1.0
_READ_BYTES: Final = 65536
_LOOKS: Final = 5
_BETWEEN_LOOKS_S: Final = 0.1
# A dead computer is detected after about 11 s.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))

# Errors of flock and TIOCEXCL for a terminal that another program has open.
_LOCKED: Final = (errno.EBUSY, errno.EWOULDBLOCK)

_IAC: Final = 255
_SE: Final = 240
_SB: Final = 250
_WILL, _WONT, _DO, _DONT = 251, 252, 253, 254
_BINARY: Final = 0
_ESCAPE: Final = bytes((_IAC,))


class Stream(Protocol):
    """Bytes from the meter. `reconnects`: its connection may be why it is silent, and a new one costs nothing."""

    reconnects: bool

    def read(self, timeout_s: float) -> bytes:
        """The bytes that arrive within `timeout_s`. Raises OSError when the other side is gone."""
        ...

    def write(self, data: bytes) -> None:
        """Send everything, also while another thread reads. Raises OSError after 1 s."""
        ...

    def raise_if_shared(self) -> None:
        """Raise PortHeldError if another program visibly has the same terminal open."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class TelnetDecoder:
    """Strips telnet (RFC 854) from a byte stream that may be cut anywhere. Pure."""

    def __init__(self) -> None:
        self._pending = b""
        self._in_subnegotiation = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The payload in `data`, and the answer to its telnet options."""
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
    return b""  # options that are off stay off


def _send_all(port: socket.socket | int, send: Callable[[memoryview], int], data: bytes) -> None:
    """Send all to a port that does not block. Raises TimeoutError if it takes nothing for a while.

    The kernel tells that, and not our clock: on a busy computer this process may be held up for as long. pyserial looks
    at its clock even after all was written (https://github.com/pyserial/pyserial/blob/v3.5/serial/serialposix.py#L633).
    """
    rest = memoryview(data)
    while rest:
        if not select.select([], [port], [], _WRITE_TIMEOUT_S)[1]:
            raise TimeoutError("the other side takes no bytes")
        with suppress(BlockingIOError):
            rest = rest[send(rest) :]


class NetworkStream(Stream):
    """A port that ser2net serves, raw or with `telnet`."""

    # ser2net may keep a connection open whose terminal is gone, and then serves the port again only after its end.
    reconnects = True

    def __init__(self, host: str, port: int, *, telnet: bool) -> None:
        self._socket = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
        self._decoder = TelnetDecoder() if telnet else None
        self._sending = threading.Lock()

    def read(self, timeout_s: float) -> bytes:
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return b""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            raise ConnectionError("the other side has closed the connection")
        if self._decoder is None:
            return data
        payload, answer = self._decoder.feed(data)
        if answer:
            self._send(answer)
        return payload

    def write(self, data: bytes) -> None:
        self._send(data if self._decoder is None else data.replace(_ESCAPE, _ESCAPE * 2))

    def raise_if_shared(self) -> None:
        """See Stream. The terminal belongs to another computer and cannot be checked."""

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: bytes) -> None:
        with self._sending:
            try:
                _send_all(self._socket, self._socket.send, data)
            except ValueError as error:  # who reads has closed it meanwhile, in another thread
                raise ConnectionError("the connection has been closed") from error


class PortError(MeterError):
    """A port exists but cannot be opened."""


class PortHeldError(PortError):
    """Another program reads the meter's port: each would steal bytes from the other."""

    def __init__(self, path: str, held_by: tuple[Holder, ...]) -> None:
        who = ", ".join(map(str, held_by)) or "a program that this user may not see"
        pids = " ".join(str(each.pid) for each in held_by)
        super().__init__(
            f"{path} is in use by {who}; two readers would each get only a part of the meter's bytes",
            transient=True,
            hint=f"end it first{f': kill {pids}' if pids else f'; as root, fuser -v {path} names it'}",
        )


class TtyStream(Stream):
    """A terminal of this computer, held exclusively. pyserial's SerialException is an OSError.

    Raises PortHeldError if another program has it open. A lock (flock, which pyserial and picocom heed) and TIOCEXCL
    (which the kernel enforces for all but root) keep later programs out. Pseudo terminals get only the lock.
    """

    reconnects = False

    def __init__(self, path: str, speed: int = SPEED) -> None:
        if held_by := _held(path):
            raise PortHeldError(path, held_by)
        self._path = path
        try:
            self._serial = serial.Serial(path, speed, exclusive=True)
        except serial.SerialException as error:
            raise _opening_failed(path, error) from error
        except termios.error as error:
            raise OSError(*error.args) from error
        if not is_pseudo(os.fstat(self._serial.fileno())):
            fcntl.ioctl(self._serial.fileno(), termios.TIOCEXCL)

    def read(self, timeout_s: float) -> bytes:
        # pyserial asks the kernel five times for what one call gets, and instruments send hundreds of kB/s.
        descriptor = self.fileno()
        if not select.select([descriptor], [], [], timeout_s)[0]:
            return b""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            raise OSError(errno.EIO, "the device is gone, or another program took what had arrived", self._path)
        return data

    def fileno(self) -> int:
        """The terminal's descriptor. Raises OSError if it was closed."""
        return self._serial.fileno()

    def write(self, data: bytes) -> None:
        descriptor = self.fileno()
        try:
            _send_all(descriptor, lambda rest: os.write(descriptor, rest), data)
        except (TypeError, ValueError) as error:  # who reads closes it meanwhile, in another thread
            raise OSError(errno.EBADF, "the port was closed", self._path) from error

    def raise_if_shared(self) -> None:
        if held_by := holders(self._path):
            raise PortHeldError(self._path, held_by)

    def close(self) -> None:
        self._serial.close()


def _held(path: str) -> tuple[Holder, ...]:
    """The processes that keep the terminal open, without short visitors.

    A command that has just ended is about to close it; the meter's simulator opens it briefly to drop unread bytes.
    """
    for _ in range(_LOOKS):
        if not holders(path):
            return ()
        time.sleep(_BETWEEN_LOOKS_S)
    return holders(path)


def _opening_failed(path: str, error: serial.SerialException) -> Exception:
    if error.errno in _LOCKED:
        return PortHeldError(path, holders(path, ours=True))
    if error.errno == errno.EACCES:
        return PortError(
            f"{path} cannot be opened: permission denied", hint="sudo usermod -aG dialout $USER, then log in again"
        )
    # pyserial's own text says everything twice.
    return OSError(error.errno, os.strerror(error.errno), path) if error.errno else error


_PROC: Final = Path("/proc")
# Majors of pseudo terminals (Documentation/admin-guide/devices.txt): each mount of devpts has its own /dev/pts/0.
_PSEUDO: Final = range(136, 144)


@dataclass(frozen=True, slots=True)
class Holder:
    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def holders(path: str, *, ours: bool = False) -> tuple[Holder, ...]:
    """The visible processes that have the terminal open, including this one only with `ours`."""
    try:
        wanted = _identity(os.stat(path))  # noqa: PTH116 - one plain call per descriptor, thousands of them
    except OSError:
        return ()
    pids = [entry for entry in _entries(_PROC) if entry.isdecimal() and (ours or int(entry) != os.getpid())]
    return tuple(Holder(int(pid), _name(pid)) for pid in pids if _has_open(pid, wanted))


def is_pseudo(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in _PSEUDO


def is_terminal(path: str) -> bool:
    """Whether the path is a terminal. It is not opened: other devices can be open in every process."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as below
    except OSError:
        return False
    if not stat.S_ISCHR(status.st_mode):
        return False
    subsystem = Path(f"/sys/dev/char/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}/subsystem")
    return is_pseudo(status) or not subsystem.exists() or subsystem.resolve().name == "tty"


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_rdev, status.st_dev if is_pseudo(status) else 0


def _has_open(pid: str, wanted: tuple[int, int]) -> bool:
    folder = f"{_PROC}/{pid}/fd"
    for descriptor in _entries(Path(folder)):
        try:
            status = os.stat(f"{folder}/{descriptor}")  # noqa: PTH116 - as above
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode) and _identity(status) == wanted:
            return True
    return False


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - as above
    except OSError:
        return []


def _name(pid: str) -> str:
    try:
        return (_PROC / pid / "comm").read_text(errors="replace").strip()
    except OSError:
        return "a program that has just ended"


_TELNET: Final = "rfc2217://"
_LARGEST_PORT: Final = 65535
FORMS: Final = "/dev/ttyUSB0, HOST:PORT for raw TCP, or rfc2217://HOST:PORT for a port that ser2net serves"


def opener(address: str) -> Callable[[], Stream]:
    """A function that opens the meter at this address; only then does an absent meter show. Raises ConfigError."""
    if address.startswith("/"):
        return lambda: TtyStream(address)
    telnet = address.startswith(_TELNET)
    host, _, port = address.removeprefix(_TELNET).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) <= _LARGEST_PORT:
        raise ConfigError(
            f"{address!r} is not a meter's address", hint=f"an address is {FORMS}, lab:NAME, {addresses()}"
        )
    return lambda: NetworkStream(host, int(port), telnet=telnet)
