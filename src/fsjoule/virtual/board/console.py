"""The board's console: a pty that outlives power cycles, bridged to the serial line of the running QEMU."""

from __future__ import annotations

import os
import queue
import selectors
import socket
import threading
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host.clock import prefer_this_thread
from fsjoule.virtual.board.mailbox import Mailbox

_CHUNK_BYTES: Final = 65536
# For a slow reader the oldest output is dropped; the board never waits.
_BACKLOG_BYTES: Final = 1 << 20
_TYPED_BACKLOG_BYTES: Final = 65536
_LOG_LIMIT_BYTES: Final = 16 << 20
# Time until a new reader of the pty is noticed. Output before that is lost, as on a wire.
_PROBE_S: Final = 0.02
_STOP_TIMEOUT_S: Final = 5.0
_PROMPT_BYTES: Final = 200


class Console:
    """Bridges the pty, the log file and the serial line in its own thread, which never blocks on any of them.

    With a mailbox, typed input reaches the board through it, not through the serial line. `heard` gets all output. So
    does `marks`, for the meter: first, and from a thread with a high priority.
    """

    def __init__(
        self,
        link: Path,
        log: Path,
        mailbox: Mailbox | None = None,
        heard: Callable[[bytes], None] = lambda _output: None,
        marks: Callable[[bytes], None] | None = None,
    ) -> None:
        self._mailbox = mailbox
        self._marks = marks
        self._heard = heard
        self._last_line = b""
        self._held = b""
        self._master, self.tty = _raw_pty()
        self._link = link
        _point(link, self.tty)
        self._log = _RotatingLog(log)
        self._line: socket.socket | None = None
        self._listened_to = False
        self._to_reader = bytearray()
        self._to_board = bytearray()
        self.dropped_bytes = 0
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_up, self._woken = socket.socketpair()
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ, self._obey)
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)
        self._thread.start()
        if mailbox is not None:
            mailbox.on_waiting = lambda: self._order(self._release)

    def connect(self, line: socket.socket) -> None:
        """Bridge a serial line. It is closed when its other end closes."""
        line.setblocking(False)
        self._order(lambda: self._begin(line))

    def say(self, text: str) -> None:
        self._order(lambda: self._send(text.encode()))

    def close(self) -> None:
        self._order(self._stop)
        self._thread.join(_STOP_TIMEOUT_S)
        with suppress(OSError):
            if self._link.readlink() == self.tty:
                self._link.unlink()
        self._selector.close()
        self._wake_up.close()
        self._woken.close()
        os.close(self._master)

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.put(order)
        self._wake_up.send(b".")

    # All methods below run in the thread.

    def _run(self) -> None:
        if self._marks is not None:
            prefer_this_thread()
        next_probe_s = 0.0
        while not self._stopping:
            for key, events in self._selector.select(None if self._listened_to else _PROBE_S):
                key.data(events)
            if not self._listened_to and time.monotonic() >= next_probe_s:
                self._probe()
                next_probe_s = time.monotonic() + _PROBE_S

    def _obey(self, _: int) -> None:
        self._woken.recv(_CHUNK_BYTES)
        while not self._orders.empty():
            self._orders.get()()

    def _stop(self) -> None:
        self._end_line()
        self._log.close()
        self._stopping = True

    def _begin(self, line: socket.socket) -> None:
        self._end_line()
        self._to_board.clear()
        self._last_line = self._held = b""
        self._line = line
        self._selector.register(line, selectors.EVENT_READ, self._on_line)

    def _end_line(self) -> None:
        if self._line is not None:
            self._selector.unregister(self._line)
            self._line.close()
            self._line = None

    def _on_line(self, events: int) -> None:
        if self._line is None:
            return
        try:
            if events & selectors.EVENT_WRITE:
                del self._to_board[: self._line.send(self._to_board)]
                self._watch_line()
            if events & selectors.EVENT_READ:
                data = self._line.recv(_CHUNK_BYTES)
                if not data:
                    self._end_line()
                self._send(data)
        except BlockingIOError:
            return
        except OSError:
            self._end_line()

    def _watch_line(self) -> None:
        if self._line is not None:
            self._watch(self._line, bool(self._to_board), self._on_line)

    def _watch(self, end: int | socket.socket, pending: bool, handler: Callable[[int], None]) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if pending else 0)
        if self._selector.get_key(end).events != events:
            self._selector.modify(end, events, handler)

    def _send(self, data: bytes) -> None:
        if self._marks is not None:
            self._marks(data)
        self._log.write(data)
        self._heard(data)
        self._last_line = (self._last_line + data).rpartition(b"\n")[2][-_PROMPT_BYTES:]
        if self._mailbox is not None:
            data = self._hold(data, waiting=self._mailbox.waiting)
        self._show(data)

    def _hold(self, data: bytes, *, waiting: bool) -> bytes:
        """Hold back an unfinished line until the board waits: after a prompt its time has stopped."""
        whole, end, begun = (self._held + data).rpartition(b"\n")
        self._held = b"" if waiting else begun
        return whole + end + (begun if waiting else b"")

    def _release(self) -> None:
        held, self._held = self._held, b""
        self._show(held)

    def _show(self, data: bytes) -> None:
        if not self._listened_to:
            self._probe()
        if not self._listened_to:
            self.dropped_bytes += len(data)
            return
        self._to_reader += data
        excess = len(self._to_reader) - _BACKLOG_BYTES
        if excess > 0:
            del self._to_reader[:excess]
            self.dropped_bytes += excess
        self._flush_to_reader()

    def _flush_to_reader(self) -> None:
        try:
            while self._to_reader:
                del self._to_reader[: os.write(self._master, self._to_reader)]
        except BlockingIOError:
            pass
        except OSError:
            self._reader_left()
            return
        self._watch(self._master, bool(self._to_reader), self._on_reader)

    def _probe(self) -> None:
        """Detect a reader of the pty: then its master no longer reports a closed other end."""
        try:
            self._take_typed()
        except BlockingIOError:
            pass
        except OSError:
            return
        self._selector.register(self._master, selectors.EVENT_READ, self._on_reader)
        self._listened_to = True
        if self._to_reader:
            self._flush_to_reader()

    def _on_reader(self, events: int) -> None:
        if not self._listened_to:
            # The reader left during the line's event in the same round.
            return
        if events & selectors.EVENT_READ:
            try:
                self._take_typed()
            except BlockingIOError:
                pass
            except OSError:
                # EIO: the last reader has closed the pty.
                self._reader_left()
                return
        if self._to_reader:
            self._flush_to_reader()

    def _reader_left(self) -> None:
        """Drop unread output: it is not for the next reader."""
        self._selector.unregister(self._master)
        self._listened_to = False
        self.dropped_bytes += len(self._to_reader)
        self._to_reader.clear()
        _drain(self.tty)

    def _take_typed(self) -> None:
        """Pass typed input to the board. Without a running board it is lost."""
        typed = os.read(self._master, _CHUNK_BYTES)
        if self._mailbox is not None:
            taken = self._mailbox.type(typed, self._last_line)
            typed = taken.to_uart
            self._to_reader += taken.echo
        if self._line is not None and len(self._to_board) < _TYPED_BACKLOG_BYTES:
            self._to_board += typed
            self._watch_line()


class _RotatingLog:
    """A log of the console's output in two files of limited size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)

    def write(self, data: bytes) -> None:
        # A full disk on the host must not end the console.
        with suppress(OSError):
            if self._file.tell() > _LOG_LIMIT_BYTES:
                self._file.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._file = self._path.open("wb", buffering=0)
            self._file.write(data)

    def close(self) -> None:
        self._file.close()


def _raw_pty() -> tuple[int, Path]:
    """A non-blocking master, and the path of its raw, closed slave: the mode lasts as long as the master."""
    master, slave = os.openpty()
    tty.setraw(slave)
    path = Path(os.ttyname(slave))
    os.close(slave)
    os.set_blocking(master, False)
    return master, path


def _point(link: Path, target: Path) -> None:
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        beside = link.with_name(link.name + ".new")
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        beside.replace(link)
    except OSError as error:
        raise LabError(f"the console's link {link} cannot be made: {error}") from error


def _drain(path: Path) -> None:
    with suppress(OSError):
        slave = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            while os.read(slave, _CHUNK_BYTES):
                pass
        finally:
            os.close(slave)
