#!/usr/bin/env python3
"""What a bad console costs a board's shell, and what the checks cost a good one.

Commands with an exit code, an output of none to twelve lines and something that they leave run in a shell of this
computer, behind a pty that loses, doubles or flips characters, one of `one in`. `wrong` are results that are not the
command's, and commands that ran otherwise, twice or not at all; `errors` were told as such. The rival types the line as
labgrid does, between markers and with no check. `sent` and `received` are bytes on the wire a command.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pexpect
from labgrid.util import gen_marker
from output import Report, arguments

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
from lossy_console import PROMPT, LossyConsole, lossy_shell, tried

from fsjoule.errors import LabError
from fsjoule.lab import LabgridShell
from fsjoule.ports import Command, CommandResult

_SHELLS: Final = ("dash", "busybox sh", "bash --norc")
_LIMIT_S: Final = 0.5


def _unchecked(console: LossyConsole, folder: Path) -> Callable[[Command], CommandResult]:
    """Types a command between markers, and takes what comes between them."""

    def run(command: Command) -> CommandResult:
        marker, output = gen_marker(), folder / "output"
        console.sendline(
            f"M='{marker[:4]}''{marker[4:]}'; ( {shlex.join(command.argv)} ) </dev/null >{output} 2>&1; R=$?; "
            f'echo "$M>"; cat {output}; echo "<$M:$R"'
        )
        index, before, match, _ = console.expect([rf"<{marker}:(\d+)\r?\n", pexpect.TIMEOUT], _LIMIT_S)
        if index == 1:
            console.sendcontrol("c")
            console.sendline("")
            raise LabError("no answer")
        console.expect([re.escape(PROMPT), pexpect.TIMEOUT], _LIMIT_S)
        said = before.rpartition(f"{marker}>".encode())[2].decode(errors="replace")
        return CommandResult(command.argv, int(match[1]), said.replace("\r\n", "\n").removeprefix("\n"))

    return run


def _checked(shell: LabgridShell) -> Callable[[Command], CommandResult]:
    return lambda command: shell.run(command.argv, timeout_s=command.timeout_s)


def main() -> None:
    options = arguments(str(__doc__), trials=2000).parse_args()
    report = Report("Commands over a bad console", {"trials": options.trials, "seed": options.seed})
    for shell in _SHELLS:
        for one_in in (0, 1000):
            for checks in (False, True):
                with tempfile.TemporaryDirectory() as folder, lossy_shell(shell, Path(folder), options.seed) as board:
                    run = _checked(board[0]) if checks else _unchecked(board[1], Path(folder))
                    board[1].rate = 1 / one_in if one_in else 0
                    begin = time.monotonic()
                    outcome = tried(run, Path(folder), options.trials, options.seed)
                    took_s = time.monotonic() - begin
                report.rows.append(
                    {
                        "shell": shell,
                        "one in": one_in,
                        "checks": "yes" if checks else "no",
                        "right": outcome.right,
                        "errors": len(outcome.errors),
                        "wrong": len(outcome.wrong),
                        "a second": round(options.trials / took_s, 1),
                        "sent": board[1].sent_bytes // options.trials,
                        "received": board[1].received_bytes // options.trials,
                    }
                )
    report.show(as_json=options.json)


if __name__ == "__main__":
    main()
