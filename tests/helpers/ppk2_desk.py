"""An emulated PPK2 on a desk: the program, its terminals, and the ways to disturb it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fsjoule.host import process

LIMIT_S = 60.0


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@dataclass(frozen=True)
class Ppk2Desk:
    devices: Path
    program: subprocess.Popen[bytes]

    @property
    def stream(self) -> Path:
        return self.devices / "ppk2"

    @property
    def mark_line(self) -> Path:
        return self.devices / "mark-line"

    def address(self, **settings: object) -> str:
        return f"ppk2:{self.stream},{','.join(f'{name}={value}' for name, value in settings.items())}"

    def pin(self, level: str) -> None:
        self._write("pin", level.encode())

    def board_says(self, text: str) -> None:
        self._write("wire", text.encode())

    def _write(self, name: str, data: bytes) -> None:
        descriptor = os.open(self.devices / name, os.O_WRONLY | os.O_NOCTTY)
        os.write(descriptor, data)
        os.close(descriptor)

    def unplug(self) -> None:
        self.program.kill()
        self.program.wait()


@contextmanager
def ppk2_desk(*source: str) -> Generator[Ppk2Desk]:
    """The program with a load, `--amperes A` or `--feed PATH`, beside a serial adapter at the board's mark line."""
    devices = Path(tempfile.mkdtemp(prefix="fsjoule-test-", dir="/dev/shm"))
    program = _started("program", devices, {"stream": "ppk2", "pin": "pin"}, *source)
    adapter = _started("serial_adapter", devices, {"wire": "wire", "port": "mark-line"})
    try:
        wait(lambda: all((devices / name).exists() for name in ("ppk2", "pin", "wire", "mark-line")), "no PPK2")
        yield Ppk2Desk(devices, program)
    finally:
        process.stop(program)
        process.stop(adapter)
        shutil.rmtree(devices)


def _started(module: str, devices: Path, names: dict[str, str], *more: str) -> subprocess.Popen[bytes]:
    links = [word for option, name in names.items() for word in (f"--{option}-link", str(devices / name))]
    return process.start([sys.executable, "-m", f"fsjoule.virtual.instruments.{module}", *links, *more])
