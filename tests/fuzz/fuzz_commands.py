"""The commands that read run folders, each in a forked process with limits."""

from __future__ import annotations

import os
import pty
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fuzz_cases import Case

_PROJECT: Final = Path(__file__).parents[2]
_CPU_S: Final = 20
_WALL_S: Final = 60.0
_LOOK_S: Final = 0.25
# What uses no CPU time for so long after a minute hangs; so does what has not ended after so many more minutes.
_STILL_S: Final = 10.0
_BUSY_S: Final = 540.0
_MEMORY_BYTES: Final = 4 << 30
_NOBODY: Final = 65534


@dataclass
class Ended:
    """How a command ended."""

    words: list[str]
    code: int
    seconds: float
    cpu_s: float
    out: bytes
    err: bytes
    late: bool = False


def chains_of(case: Case, number: int) -> dict[str, list[list[str]]]:
    """Commands by what they are about; those of one list follow each other."""
    run, results, out = str(case.run), str(case.results), case.out
    index = ["--index", f"{out}/i.sqlite"]
    kept = ["--confirmations", f"{case.run}/confirmations"]
    chains = {
        "show": [["show", run], ["show", run, "--json"]],
        "page": [["report", "page", run]],
        "allure": [["report", "allure", results, "--output", f"{out}/allure"]],
        "compare": [
            ["compare", "6.1", "6.12", "--within", run, "--chart", f"{out}/a.svg", "--page", f"{out}/a.html"],
            ["compare", run, f"{results}/whole", "--json"],
            ["compare", run, results, "--markdown"],
        ],
        "explain": [
            ["explain", "6.1", "6.12", "--within", run, "--svg", f"{out}/e.svg", "--folded", f"{out}/e.folded"],
            ["explain", "6.1", "6.12", "--within", run, "--json"],
        ],
        "index": [
            ["index", "import", results, *index],
            ["index", "stats", *index],
            ["index", "series", *index],
            ["index", "rebuild", results, *index, "--json"],
        ],
        "trend": [
            ["index", "import", run, *index, "--json"],
            ["trend", *index, *kept, "--page", f"{out}/t.html", "--svg", f"{out}/svg"],
            ["trend", *index, *kept, "--json"],
        ],
        "suites": [["suites", "show", "quick", "--lg-env", f"{_PROJECT}/env/virtual.yaml", "--results", results]],
        "push": [["ci", "push", results], ["ci", "pull", f"{out}/pulled"]],
        "resume": [["(resume)", run]],
    }
    if number % 100 == 0:
        chains["build"] = [["report", "build", results, "--output", f"{out}/report"]]
    return chains


def _resume(words: Sequence[str]) -> None:
    """What `pytest tests/bench --resume` does before it asks for the board."""
    from fsjoule.runs.options import BenchOptions
    from fsjoule.runs.request import choose

    choice = choose(BenchOptions(resume=Path(words[0]), fs="ext4"))
    assert choice.resumed is not None
    choice.resumed.check_board("virtual", {})
    choice.resumed.folder()


def _main(words: list[str]) -> None:
    """A command, to its end; it is the process's."""
    from fsjoule.cli import main
    from fsjoule.errors import FsjouleError

    if words[0] != "(resume)":
        sys.argv = ["fsjoule", *words]
        main()
        return
    try:
        _resume(words[1:])
    except FsjouleError as error:
        print(f"error: {type(error).__name__}", file=sys.stderr)
        sys.exit(error.exit_code)


def execute(words: list[str], case: Case, *, terminal: bool, nobody: bool) -> Ended:
    """Run a command in a forked process with limits, its output to pipes or to a terminal."""
    out_read, out_write = pty.openpty() if terminal else os.pipe()
    err_read, err_write = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        os.close(out_read)
        os.close(err_read)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, number in ((nothing, 0), (out_write, 1), (err_write, 2)):
            os.dup2(descriptor, number)
        _child(words, case, nobody=nobody)
    os.close(out_write)
    os.close(err_write)
    output = {out_read: bytearray(), err_read: bytearray()}
    late = not _drain(output, child, began + _WALL_S)
    if late:
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    for descriptor in output:
        os.close(descriptor)
    return Ended(
        words,
        os.waitstatus_to_exitcode(status),
        time.monotonic() - began,
        used.ru_utime + used.ru_stime,
        bytes(output[out_read]),
        bytes(output[err_read]),
        late=late,
    )


def _child(words: list[str], case: Case, *, nobody: bool) -> None:
    code = 70
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Not of addresses: V8 reserves more than there is memory.
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        os.chdir(case.folder / "cwd")
        if nobody:
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
        _main(words)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:  # whatever it is, it is a finding
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 4
        os._exit(code)


def _drain(output: dict[int, bytearray], child: int, until: float) -> bool:
    """Read until the process has ended and nothing more comes; whether that was in time."""
    waiting = set(output)
    ended, used_s = False, -1.0
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], 0.0 if ended else _LOOK_S)
        if not ready:
            # The end of a terminal is not always told.
            if ended:
                return True
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if not ended and time.monotonic() > until:
                # On a busy machine it may only have waited for its turn.
                used_s, before_s = _cpu_s(child), used_s
                if used_s == before_s or time.monotonic() > until + _BUSY_S:
                    return False
                until_look = time.monotonic() + _STILL_S
                while time.monotonic() < until_look and not select.select(list(waiting), [], [], _LOOK_S)[0]:
                    pass
        for descriptor in ready:
            try:
                part = os.read(descriptor, 1 << 16)
            except OSError:  # a terminal whose other end is closed
                part = b""
            output[descriptor] += part
            if not part:
                waiting.discard(descriptor)
    return True


def _cpu_s(child: int) -> float:
    """The CPU time that a process has used, in all of its threads."""
    words = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
