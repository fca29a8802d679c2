"""How emulated instruments are reached: pseudo terminals and TCP sockets. And the end of their programs."""

from __future__ import annotations

import os
import select
import signal
import socketserver
import termios
import threading
import tty
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

_READ_BYTES: Final = 4096


def end_asked() -> int:
    """A descriptor that can be read once SIGTERM or SIGINT has come. For the main thread."""
    ended, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(signalled)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)
    return ended


class Terminal:
    """A pseudo terminal in raw mode, with a link to it.

    With `held` its other side stays open here, so that who writes there may come and go. Else the kernel tells whether
    somebody has it open.
    """

    def __init__(self, link: Path, closing: ExitStack, *, held: bool) -> None:
        self.fd, slave = os.openpty()
        closing.callback(os.close, self.fd)
        tty.setraw(slave)
        os.set_blocking(self.fd, False)
        self._path = os.ttyname(slave)
        if held:
            closing.callback(os.close, slave)
        else:
            os.close(slave)
        beside = link.with_name(f"{link.name}.new")
        beside.unlink(missing_ok=True)
        beside.symlink_to(self._path)
        beside.replace(link)
        closing.callback(link.unlink, missing_ok=True)

    @property
    def is_open(self) -> bool:
        """Whether another program has the other side open."""
        master = select.poll()
        master.register(self.fd, 0)
        return not master.poll(0)

    def read(self) -> bytes:
        with suppress(OSError):  # nothing there, or nobody
            return os.read(self.fd, _READ_BYTES)
        return b""

    def write(self, data: bytes) -> int:
        """Write as much as it takes; returns how much that is."""
        with suppress(BlockingIOError):
            return os.write(self.fd, data)
        return 0

    def discard(self) -> None:
        """Drop what was not read: the next who opens it would take it for new."""
        slave = os.open(self._path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        termios.tcflush(slave, termios.TCIOFLUSH)
        os.close(slave)


class _TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def served(conversation: type[socketserver.StreamRequestHandler]) -> Generator[int]:
    """Hold such a conversation with whoever calls this computer; yields the port, a free one."""
    with _TcpServer(("127.0.0.1", 0), conversation) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()
