"""A terminal of this computer whose bytes a process of their own takes out, for instruments that send a lot.

The kernel keeps a sixth of a second of 400 kB/s, and a Python thread on a busy computer may have to wait for longer:
for a processor, or for another thread that waits for one and holds the interpreter. The process copies the bytes into a
pipe that holds seconds of them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import subprocess
import termios
from contextlib import suppress
from typing import Final

from fsjoule.host import process
from fsjoule.meter.links.streams import Stream, TtyStream

# As much as Linux lets an ordinary user have (/proc/sys/fs/pipe-max-size).
_PIPE_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 16
_VMIN: Final = 6


class PumpedTty(Stream):
    """See Stream. Raises what TtyStream raises, and MissingToolError."""

    reconnects = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._tty = TtyStream(path)
        descriptor = self._tty.fileno()
        # `cat` waits for bytes, and takes a read without one for the end.
        settings = termios.tcgetattr(descriptor)
        settings[_VMIN][termios.VMIN] = 1
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)
        os.set_blocking(descriptor, True)
        self._bytes, end = os.pipe2(os.O_CLOEXEC)
        with suppress(OSError):  # an administrator may allow less
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            with os.fdopen(os.dup(descriptor), "rb", buffering=0) as source, os.fdopen(end, "wb", buffering=0) as sink:
                self._pump = process.start(["cat"], stdin=source, log=sink, stderr=subprocess.DEVNULL)
        except BaseException:
            os.close(self._bytes)
            self._tty.close()
            raise
        with suppress(OSError):  # only root may ask for it
            os.sched_setscheduler(self._pump.pid, os.SCHED_FIFO, os.sched_param(1))

    def read(self, timeout_s: float) -> bytes:
        if not select.select([self._bytes], [], [], timeout_s)[0]:
            return b""
        data = os.read(self._bytes, _READ_BYTES)
        if not data:
            raise OSError(errno.EIO, "the device is gone", self._path)
        return data

    def write(self, data: bytes) -> None:
        self._tty.write(data)

    def raise_if_shared(self) -> None:
        """See Stream. The port is locked; its other reader is this one's own."""

    def close(self) -> None:
        process.stop(self._pump)
        os.close(self._bytes)
        self._tty.close()
