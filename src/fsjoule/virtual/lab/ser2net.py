"""ser2net for the virtual lab; `python -m fsjoule.virtual.lab.ser2net SER2NET ARGUMENT...` becomes ser2net.

labgrid's exporter lets ser2net listen on every address; here it listens only on 127.0.0.1. A killed exporter leaves its
ser2net running, which steals bytes from the next one; here it ends with the exporter. If somebody else has taken its
port, ser2net goes on without one, and clients reach somebody else; here the exporter learns of it.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


_PORT: Final = re.compile(r"\btcp,(?:127\.0\.0\.1,)?(\d+)$")


def on_loopback(arguments: list[str]) -> list[str]:
    """The arguments with `tcp,PORT` narrowed to `tcp,127.0.0.1,PORT`."""
    return [_PORT.sub(r"tcp,127.0.0.1,\1", argument) for argument in arguments]


def _check_ports(arguments: list[str]) -> None:
    for found in filter(None, map(_PORT.search, arguments)):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as ser2net does
            try:
                tried.bind(("127.0.0.1", int(found[1])))
            except OSError as error:
                sys.exit(f"ser2net cannot listen on port {found[1]}: {error.strerror}")


def main() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the exporter has ended")
    _check_ports(sys.argv[2:])
    os.execv(sys.argv[1], [sys.argv[1], *on_loopback(sys.argv[2:])])  # noqa: S606 - an argument list


if __name__ == "__main__":
    main()
