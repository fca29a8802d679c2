"""A board over fakes that has recorded a run, and checks each of its states in no time."""

from __future__ import annotations

import time
from collections.abc import Callable

from fake_bench import FILES, answer

from fsjoule.bench.crash import onboard
from fsjoule.model.write_log import END, FLUSH, LogEntry
from fsjoule.ports import CommandResult
from fsjoule.testing import FakeShell

_WRITES = 30
_CHECK_S = 0.2


def crash_shell(content: str = "", check: Callable[[], None] = lambda: None) -> FakeShell:
    """`content` is that of all writes; `check` comes before each batch. Without the fifth write a file is missing."""
    shell = FakeShell(answer, dict(FILES))
    entries = [LogEntry(0, 0, 0, 8, "made")]
    entries += [LogEntry(10 * i, 8 * i, 8, 0, f"{content}{i}") for i in range(_WRITES)]
    entries += [LogEntry(0, 0, 0, FLUSH), LogEntry(0, 0, 0, 8, "7"), LogEntry(0, 0, 0, 8, END)]
    shell.files[onboard.ENTRIES] = "".join(f"{each}\n" for each in entries).encode()
    shell.files[onboard.PROMISES] = b"7 synced 0 0 config\n"

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if argv[0] == "blockdev":
            return CommandResult(argv, 0, "131072\n")
        if argv != onboard.CHECK_ARGV:
            return answer(argv)
        check()
        time.sleep(_CHECK_S)
        orders = (line.split() for line in shell.files[onboard.ORDERS].decode().splitlines())
        states = ((words[1], words[3:]) for words in orders if words[0] == "state")
        there = ((name, any(each.startswith("32:8:") for each in pieces)) for name, pieces in states)
        lines = (f"{name} ok 10 11 20 22" if whole else f"{name} lost 10 11 20 22 1=missing" for name, whole in there)
        return CommandResult(argv, 0, "\n".join(lines) + "\n")

    shell.answer = answered
    return shell
