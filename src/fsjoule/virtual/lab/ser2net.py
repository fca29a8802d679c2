"""ser2net for the virtual lab; `python -m fsjoule.virtual.lab.ser2net SER2NET ARGUMENT...` becomes ser2net.

labgrid's exporter lets ser2net listen on every address; here it listens only on 127.0.0.1. A killed exporter leaves its
ser2net running, which steals bytes from the next one; here it ends with the exporter.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def on_loopback(arguments: list[str]) -> list[str]:
    """The arguments with `tcp,PORT` narrowed to `tcp,127.0.0.1,PORT`."""
    return [re.sub(r"\btcp,(\d+)$", r"tcp,127.0.0.1,\1", argument) for argument in arguments]


def main() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the exporter has ended")
    os.execv(sys.argv[1], [sys.argv[1], *on_loopback(sys.argv[2:])])  # noqa: S606 - an argument list


if __name__ == "__main__":
    main()
