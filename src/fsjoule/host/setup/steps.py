"""Steps of a set-up: one line each, what their programs say in a log, and the first cause of a failure in words."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Final

from fsjoule.errors import HostError, not_written
from fsjoule.host import locks, process
from fsjoule.host.interrupts import Interrupted, heard

_LAST_LINES: Final = 12
_POLL_S: Final = 0.2
_WAIT_S: Final = 1800.0
# What apt, dpkg and others say first of a failure; what else they say follows from that.
_CAUSE: Final = re.compile(
    r"^(?:E: |W: (?=Failed to fetch)|dpkg: (?=error)|ERROR: |error: )(.+(?:\n {1,2}\S.*)?)", re.MULTILINE
)
_FULL: Final = re.compile(r"^.*(?:No space left on device|Disk quota exceeded).*$", re.MULTILINE)


class Steps:
    """Runs programs of a set-up, one after the other. `log` gets what they say, `show` a line of each step.

    Raises ConfigError or StorageError if the log cannot be written.
    """

    def __init__(self, log: Path, show: IO[str] | None = None) -> None:
        self.log = log
        self.show = show or sys.stdout
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
        except OSError as error:
            raise not_written(
                f"{log} cannot be written", error, hint="remove it, or let it be yours (chown)"
            ) from error

    def say(self, line: str) -> None:
        """Print a line of the set-up."""
        print(f"set-up: {line}", file=self.show, flush=True)

    def run(
        self,
        what: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str | None] | None = None,
        pass_fds: Sequence[int] = (),
        because: str = "",
    ) -> str:
        """Run a program to its end and return what it said.

        Ctrl-C reaches it directly: apt still finishes what it has begun to install. Raises Interrupted after a signal,
        HostError if it fails, with its first cause, or with `because`, which went before.
        """
        before, begin = self.log.stat().st_size, time.monotonic()
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"\n== {time.strftime('%H:%M:%S')} set-up: {what}\n{' '.join(map(str, argv))}\n")
        signals: list[int] = []

        def note(number: int, _frame: FrameType | None) -> None:
            signals.append(number)

        self._write(f"set-up: {what} ...")
        with heard(note):
            program = process.start(
                argv, log=self.log, env=env, pass_fds=pass_fds, new_session=False, die_with_parent=False
            )
            passed_on = False
            while program.poll() is None:
                if not passed_on and any(number != signal.SIGINT for number in signals):
                    program.terminate()
                    passed_on = True
                if self.show.isatty():
                    self._write(f"\rset-up: {what} ... {time.monotonic() - begin:.0f} s")
                time.sleep(_POLL_S)
        took = f"{time.monotonic() - begin:.0f} s"
        if self.show.isatty():
            self._write(f"\rset-up: {what} ...")
        if signals:
            self._write("\nset-up: interrupted. The same command goes on.\n")
            raise Interrupted(signals[0])
        with self.log.open("rb") as log:
            log.seek(before)
            said = log.read().decode(errors="replace")
        if program.returncode == 0:
            self._write(f" {took}\n")
            return said
        self._write(f" failed after {took}. The last lines of {self.log}:\n")
        for line in said.splitlines()[-_LAST_LINES:]:
            self._write(f"  | {line}\n")
        cause = because or first_cause(said)
        raise HostError(
            f"{what}: exit code {program.returncode} of {argv[0]}{f': {cause}' if cause else ''}",
            hint="the same command goes on where this one ended",
        )

    def _write(self, text: str) -> None:
        self.show.write(text)
        self.show.flush()


def first_cause(said: str) -> str:
    """The first line in which a program tells why it fails, or a full disk; empty if it says neither."""
    if full := _FULL.search(said):
        return full[0].strip()
    cause = _CAUSE.search(said)
    return " ".join(cause[1].split()) if cause else ""


@contextmanager
def alone(lock: Path, steps: Steps, *, timeout_s: float = _WAIT_S) -> Generator[int]:
    """Hold a lock that only one set-up can hold, waiting for another one; its descriptor.

    A program that gets the descriptor holds the lock as long as it runs. Raises HostError after `timeout_s`.
    """
    deadline, told = time.monotonic() + timeout_s, False
    while (descriptor := locks.locked(lock)) is None:
        holder = locks.locker(lock.stat().st_ino)
        who = f"another set-up is at work (process {holder})" if holder else "another set-up is at work"
        if time.monotonic() > deadline:
            raise HostError(
                f"{who}, for more than {timeout_s / 60:.0f} min", transient=True, hint="wait for it, or end it"
            )
        if not told:
            steps.say(f"{who}; waiting for it, at most {timeout_s / 60:.0f} min")
            told = True
        time.sleep(_POLL_S)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
