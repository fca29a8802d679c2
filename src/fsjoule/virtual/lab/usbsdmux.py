"""`usbsdmux CONTROL_PATH MODE` for the virtual board's mux: arguments, output and exit codes of the real tool.

It imports only the standard library, because it starts for every move of the card.
"""

from __future__ import annotations

import argparse
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# A move waits until the host's page cache is written and QEMU has released the card.
_TIMEOUT_S: Final = 60.0
_ANSWER_LIMIT_BYTES: Final = 4096


def install(bin_dir: Path) -> Path:
    """Put an executable `usbsdmux` into `bin_dir`, which runs in this Python environment."""
    program = bin_dir / "usbsdmux"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fsjoule.virtual.lab.usbsdmux "$@"\n')
    program.chmod(0o755)
    return program


def ask(control_path: str, mode: str) -> str:
    """The card's position after `mode`. Raises OSError if no board answers, RuntimeError if it refuses."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(control_path)
        connection.sendall(("dut" if mode == "client" else mode).encode() + b"\n")
        with connection.makefile("r") as answers:
            verdict, _, text = answers.readline(_ANSWER_LIMIT_BYTES).strip().partition(" ")
    if verdict != "ok":
        raise RuntimeError(text or "the board ended")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="usbsdmux", description="Moves the virtual board's card.")
    parser.add_argument("sg", metavar="CONTROL_PATH", help="control socket of the virtual board")
    parser.add_argument("mode", choices=("get", "dut", "client", "host", "off"), help="who gets the card")
    parsed = parser.parse_args(arguments)
    try:
        position = ask(parsed.sg, parsed.mode)
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"usbsdmux: {parsed.sg}: {error}\n")
        return 1
    if parsed.mode == "get":
        sys.stdout.write(position + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
