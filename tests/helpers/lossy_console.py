"""labgrid's console at a real shell on a pty, over a line that loses, doubles and flips characters."""

from __future__ import annotations

import os
import pty
import random
import re
import select
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pexpect
from labgrid.util import PtxExpect

from fsjoule.lab import LabgridShell
from fsjoule.lab.console import ConsoleRecorder

PROMPT = "root@board:~# "


class LossyConsole:
    """Each character is lost, doubled or flipped in one bit with a chance of `rate`, both ways, once it is set."""

    def __init__(self, shell: str, folder: Path, seed: int) -> None:
        self.rate = 0.0
        self.damaged = self.sent_bytes = self.received_bytes = 0
        self._random = random.Random(seed)
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            command = shell.split()
            os.environ.update(PS1=PROMPT, TERM="dumb")
            os.execvp(command[0], [*command, "-i"])
        self._expect = PtxExpect(self)
        self.expect(PROMPT, 10)

    def close(self) -> None:
        os.close(self._master)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def read(self, size: int = 1, timeout: float = 0.0) -> bytes:
        del size
        if not select.select([self._master], [], [], timeout)[0]:
            raise pexpect.TIMEOUT("nothing")
        data = os.read(self._master, 65536)
        self.received_bytes += len(data)
        return self._carried(data)

    def write(self, data: bytes) -> int:
        carried = self._carried(data)
        self.sent_bytes += len(data)
        while carried:
            carried = carried[os.write(self._master, carried) :]
        return len(data)

    def sendline(self, line: str) -> None:
        self._expect.sendline(line)

    def sendcontrol(self, char: str) -> None:
        self._expect.sendcontrol(char)

    def expect(self, pattern: Any, timeout: float) -> tuple[int, bytes, re.Match[bytes], bytes]:
        index = self._expect.expect(pattern, timeout=timeout)
        return index, self._expect.before, self._expect.match, self._expect.after

    def _carried(self, data: bytes) -> bytes:
        if not self.rate:
            return data
        carried = bytearray()
        for byte in data:
            if self._random.random() >= self.rate:
                carried.append(byte)
                continue
            self.damaged += 1
            kind = self._random.randrange(3)
            carried += (b"", bytes((byte, byte)), bytes((byte ^ 1 << self._random.randrange(8),)))[kind]
        return bytes(carried)


@contextmanager
def lossy_shell(shell: str, folder: Path, seed: int = 1) -> Generator[tuple[LabgridShell, LossyConsole]]:
    """A board's shell whose files are in a folder of the test's, and its console."""
    console = LossyConsole(shell, folder, seed)
    driver: Any = SimpleNamespace(console=console, prompt=re.escape(PROMPT), login_prompt="login: ")
    try:
        yield LabgridShell(driver, ConsoleRecorder(console), lambda: None, files=f"{folder}/.fsjoule"), console
    finally:
        console.close()
