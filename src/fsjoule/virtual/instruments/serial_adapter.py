"""A serial adapter at a board's mark line, as a program: what the board says comes out of a port.

As with a real adapter, what comes while nobody has the port open is lost: else the next who opens it would take old
marks for new ones.
"""

from __future__ import annotations

import argparse
import select
import sys
from contextlib import ExitStack
from pathlib import Path

from fsjoule.host.clock import prefer_this_thread
from fsjoule.virtual.instruments.terminal import Terminal, end_asked


def run(wire: Terminal, port: Terminal, ended: int) -> None:
    """Pass on until the descriptor `ended` can be read."""
    while ended not in select.select([ended, wire.fd], [], [])[0]:
        said = wire.read()
        if port.is_open:
            port.write(said)


def main() -> int:
    parser = argparse.ArgumentParser(description="A serial adapter at a board's mark line, on pseudo terminals.")
    parser.add_argument("--wire-link", type=Path, required=True, help="link to a terminal that takes the mark line")
    parser.add_argument("--port-link", type=Path, required=True, help="link to the terminal that it comes out of")
    chosen = parser.parse_args()
    ended = end_asked()
    with ExitStack() as closing:
        wire, port = Terminal(chosen.wire_link, closing, held=True), Terminal(chosen.port_link, closing, held=False)
        prefer_this_thread()
        run(wire, port, ended)
    return 0


if __name__ == "__main__":
    sys.exit(main())
