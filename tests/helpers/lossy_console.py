"""labgrid's console at a real shell on a pty, over a line that loses, doubles and flips characters."""

from __future__ import annotations

import os
import pty
import random
import re
import select
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pexpect
from labgrid.util import PtxExpect

from fsjoule.errors import LabError
from fsjoule.lab import LabgridShell
from fsjoule.lab.console import ConsoleRecorder
from fsjoule.ports import Command, CommandResult

PROMPT = "root@board:~# "
_WRITTEN_BYTES = 100


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
        os.set_blocking(self._master, False)
        self._said = b""
        self._expect = PtxExpect(self)
        self.expect(PROMPT, 10)

    def close(self) -> None:
        os.close(self._master)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def read(self, size: int = 1, timeout: float = 0.0) -> bytes:
        del size
        if not self._said:
            self._hear(timeout)
        if not self._said:
            raise pexpect.TIMEOUT("nothing")
        said, self._said = self._said, b""
        return said

    def _hear(self, timeout: float) -> None:
        if select.select([self._master], [], [], timeout)[0]:
            data = os.read(self._master, 65536)
            self.received_bytes += len(data)
            self._said += self._carried(data)

    def write(self, data: bytes) -> int:
        carried = self._carried(data)
        self.sent_bytes += len(data)
        while carried:
            self._hear(0.0)  # a shell that nobody listens to stops listening
            try:
                carried = carried[os.write(self._master, carried[:_WRITTEN_BYTES]) :]
            except BlockingIOError:
                self._hear(1.0)
        return len(data)

    def sendline(self, line: str) -> None:
        self._expect.sendline(line)

    def sendcontrol(self, char: str) -> None:
        self._expect.sendcontrol(char)

    def expect(self, pattern: Any, timeout: float) -> tuple[int, bytes, re.Match[bytes], bytes]:
        expecting: Any = self._expect
        index = expecting.expect(pattern, timeout=timeout)
        return index, expecting.before, expecting.match, expecting.after

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


@dataclass
class Outcome:
    """What became of commands; `wrong` are results that are not the command's, and commands that ran otherwise."""

    right: int = 0
    errors: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])


def tried(run: Callable[[Command], CommandResult], folder: Path, count: int, seed: int) -> Outcome:
    """Run commands with an output or none, an exit code, and something that they leave, each once."""
    outcome, chance, ran = Outcome(), random.Random(seed), folder / "ran"
    ran.touch()
    asked: list[str] = []
    for number in range(count):
        code = chance.choice((0, 0, 0, 1, 10))
        words = f"--name={number} --size={chance.randrange(1 << 40)} --bs=16384 'it is'"
        printed = "".join(f"{chance.randrange(1 << 60)} of {number}\n" for _ in range(chance.choice((0, 0, 1, 3, 12))))
        script = f"echo {shlex.quote(words)} >>{ran}; printf %s {shlex.quote(printed)}; exit {code}"
        try:
            result = run(Command(("sh", "-c", script)))
        except LabError as error:
            outcome.errors.append(str(error))
            words = f"({words})"
        else:
            if (result.exit_code, result.stdout) == (code, printed):
                outcome.right += 1
            else:
                outcome.wrong.append(f"{words}: {result.exit_code} {result.stdout!r}")
        asked.append(words)
    done = Counter(ran.read_text().splitlines())
    for words in asked:
        times = done.pop(words.strip("()"), 0)
        # A command of which nothing is known may have run.
        if times > 1 or (times == 0 and not words.startswith("(")):
            outcome.wrong.append(f"{words} ran {times} times")
    outcome.wrong += [f"{words!r} ran" for words in done]
    return outcome
