"""Processes by identity: a number alone may belong to another program by now, the start time tells."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_libc = ctypes.CDLL(None, use_errno=True)
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """A process number with the process's start time (clock ticks since boot): the pair is never reused."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessRef | None:
        found = seen(pid)
        return None if found is None or found.ended else found.process

    def alive(self) -> bool:
        return ProcessRef.of(self.pid) == self

    def send(self, sig: signal.Signals) -> None:
        if self.alive():
            try:
                os.kill(self.pid, sig)
            except (ProcessLookupError, PermissionError):
                return

    def end(self) -> None:
        """Ask the process to end. SIGCONT wakes a stopped one for that."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as the kernel shows it. `status` is a zombie's exit status, negative for a signal."""

    process: ProcessRef
    name: str
    state: str
    parent: int
    status: int

    @property
    def stopped(self) -> bool:
        """Whether a signal stopped it (SIGSTOP), not a debugger."""
        return self.state == "T"

    @property
    def ended(self) -> bool:
        return self.state in "ZX"


def seen(pid: int) -> Seen | None:
    """The process with this number, as the kernel shows it now, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name is in parentheses and may contain any character, even parentheses.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    status = os.waitstatus_to_exitcode(int(fields[49])) if fields[0] in "ZX" else 0
    return Seen(ProcessRef(pid, int(fields[19])), name, fields[0], int(fields[1]), status)


def ending(status: int | None) -> str:
    """How a program ended, in words. A negative status is a signal, None is unknown."""
    if status is None:
        return "died"
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    why = ", as it wrote more to a file than this shell allows (ulimit -f)" if -status == signal.SIGXFSZ else ""
    return f"was killed by {name}{why}"


def failing(status: int) -> str:
    """How a program failed, in words: as `ending`."""
    return f"failed with exit code {status}" if status >= 0 else ending(status)


def end_with_parent() -> None:
    """Get SIGTERM when the process that started this one ends, in whatever way."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def become_subreaper() -> None:
    """Adopt orphans among this process's descendants, so that `descendants` finds all of them."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[ProcessRef]:
    """All living processes below `pid`, parents before their children."""
    return [each.process for each in family(pid) if not each.ended]


def family(pid: int) -> list[Seen]:
    """All processes below `pid`, with zombies, parents before their children."""
    by_parent: dict[int, list[Seen]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - hundreds of names, none used as a path
        if entry.isdecimal() and (one := seen(int(entry))) is not None:
            by_parent.setdefault(one.parent, []).append(one)
    found: list[Seen] = []
    queue = [pid]
    while queue:
        children = by_parent.get(queue.pop(0), [])
        found += children
        queue += [child.process.pid for child in children]
    return found


def wait_gone(processes: Iterable[ProcessRef], timeout_s: float) -> list[ProcessRef]:
    """Wait at most `timeout_s` until all have ended. Returns the ones that still run."""
    deadline = time.monotonic() + timeout_s
    left = [process for process in processes if process.alive()]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = [process for process in left if process.alive()]
    return left


def end_descendants(timeout_s: float = 3.0) -> None:
    """End all descendants of this process, a subreaper: SIGTERM, then SIGKILL until no process is left."""
    me = os.getpid()
    for process in (first := descendants(me)):
        process.end()
    wait_gone(first, timeout_s)
    deadline = time.monotonic() + timeout_s
    # A process may start another one between the look and the kill: look again until there are none.
    while (left := descendants(me)) and time.monotonic() < deadline:
        for process in left:
            process.send(signal.SIGKILL)
        wait_gone(left, timeout_s=0.5)
    _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0] > 0:
            pass
    except ChildProcessError:
        return
