"""Whether what runs on the board is right whatever else ends meanwhile: a thousand times each, on one boot.

Boots the virtual board once, lets processes come and go on it, and runs every command that reads what can vanish, or
that needs something to be free which was just in use. The loops run on the board itself. A first row is the listing of
all processes as it was until a process that ended in between cost a measurement: it says how often that is met.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from common import show

from fsjoule import images
from fsjoule.bench.measurer import Measurer
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.phases import Phases
from fsjoule.bench.scratch import SCRATCH_DIRECTORY, Scratch, checked
from fsjoule.filesystems import filesystem
from fsjoule.host.clock import HostClock
from fsjoule.host.messages import lines_to
from fsjoule.host.paths import project_dir
from fsjoule.lab import LabgridBoard, board_meter, read_environment
from fsjoule.ports import Shell
from fsjoule.runs.meter import environment_target

_KERNEL: Final = "6.1"
_ROOT: Final = "ext4"
_AGAIN: Final = f"{onboard.DIRECTORY}/again"
_SAID: Final = f"{onboard.DIRECTORY}/said"
_CHURN: Final = f"{onboard.DIRECTORY}/churn"
_TURN_LIMIT_S: Final = 120.0
_AT_ONCE: Final = 20
_AS_IT_WAS: Final = "list all processes, as it was"
_ENOUGH: Final = 100
_CONSOLE: Final = "a command over the console"

# again TIMES FIRST SCRIPT: says how many of so many turns failed, and what the first that failed said. `set -e` is the
# script's own affair; N is another number in every turn.
_AGAIN_TEXT: Final = f"""#!/bin/sh
times=$1 first=$2 script=$3 n=0 failed=0
while [ $n -lt $times ]; do
    N=$((first + n)) sh -c "$script" > {_SAID} 2>&1 || {{
        failed=$((failed + 1))
        [ $failed -gt 1 ] || cp {_SAID} {_SAID}-first
    }}
    n=$((n + 1))
done
echo $failed
[ $failed = 0 ] || head -c 300 {_SAID}-first
"""
# Some process begins and ends all the time, and most of the board's one CPU is left for what is tried.
_CHURN_TEXT: Final = f"""#!/bin/sh
while [ -e {_CHURN}ing ]; do
    sleep 0.02 &
    wait
    sleep 0.05
done
"""


def commands(scratch: Scratch, names: tuple[str, ...]) -> dict[str, str]:
    """What is run, by what it does: scripts of the board's shell that succeed if all is right."""
    before, after = onboard.THREADS_BEFORE, onboard.THREADS_AFTER
    # Each job's exit code is asked for; the shell's `wait` for all tells none.
    waits = f'a=; for i in 1 2 3; do {onboard.START} $N 3 & a="$a $!"; done; for p in $a; do wait $p || exit 1; done'
    found = {
        _AS_IT_WAS: "cat /proc/[0-9]*/stat",
        "list all processes": f"{shlex.join(onboard.THREADS)} > {_SAID}-list && grep -q kthreadd {_SAID}-list",
        "read the counters": shlex.join(onboard.counters_argv(scratch.device.rpartition("/")[2])),
        "marks of one job, with kernel threads": (
            f"rm -f {before} {after}; {onboard.START} $N 1 threads && {onboard.STOP} $N threads && "
            f"grep -q kthreadd {before} && grep -q kthreadd {after} && test -s {onboard.AFTER}"
        ),
        "three jobs begin together": f"{waits}; rm {onboard.START}-$N-*",
        "a timed operation": f"{onboard.TIMED} $N '' sleep 0.01 && test -s {onboard.DURATION}",
    }
    for name in names:
        found[f"{name}: make, mount, write, unmount"] = _filesystem_turn(scratch.device, name)
    found["dm-flakey: create, mount, write, unmount, remove"] = _flakey_turn(scratch.device)
    return found


def _filesystem_turn(device: str, name: str) -> str:
    kind = filesystem(name)
    unmount = shlex.join(kind.unmount_argv(SCRATCH_DIRECTORY))
    steps = [
        shlex.join(kind.make_argv(device, uuid4())),
        shlex.join(kind.mount_argv(device, SCRATCH_DIRECTORY)),
        # Unmounted right after a program that wrote, as every measurement does.
        f"{onboard.TIMED} $N {shlex.quote(unmount)} dd if=/dev/zero of={SCRATCH_DIRECTORY}/file bs=64k count=4",
    ]
    return " && ".join(steps)


def _flakey_turn(device: str) -> str:
    kind, name = filesystem("ext4"), "fsjoule-race"
    table = f"0 $(blockdev --getsz {device}) flakey {device} 0 1000 0"
    steps = [
        shlex.join(kind.make_argv(device)),
        f'dmsetup create {name} --verifyudev --table "{table}"',
        shlex.join(kind.mount_argv(f"/dev/mapper/{name}", SCRATCH_DIRECTORY)),
        f"dd if=/dev/zero of={SCRATCH_DIRECTORY}/file bs=64k count=4",
        shlex.join(kind.unmount_argv(SCRATCH_DIRECTORY)),
        f"dmsetup remove --verifyudev --retry {name}",
    ]
    return " && ".join(steps)


def repeated(shell: Shell, script: str, times: int) -> tuple[int, str]:
    """How often a script failed, and what it said the first time. Asked for in parts: each has its own time limit."""
    failed, first = 0, ""
    for begin in range(0, times, _AT_ONCE):
        count = min(_AT_ONCE, times - begin)
        told = checked(shell, _AGAIN, str(count), str(begin + 1), script, timeout_s=count * _TURN_LIMIT_S).stdout
        number, _, said = told.partition("\n")
        failed += int(number)
        first = first or said.strip()
        _say(f"  {begin + count} turns, {failed} failed")
    return failed, first


def over_the_console(shell: Shell, times: int) -> tuple[int, str]:
    """The same for a command that is typed and answered over the console."""
    wrong = [n for n in range(times) if shell.run(("echo", f"turn {n}")).stdout != f"turn {n}\n"]
    return len(wrong), f"wrong in turn {wrong[0]}" if wrong else ""


@contextmanager
def coming_and_going(shell: Shell) -> Generator[None]:
    """Processes come and go on the board."""
    checked(shell, "touch", f"{_CHURN}ing")
    checked(shell, "sh", "-c", f"{_CHURN} > /dev/null 2>&1 &")
    try:
        yield
    finally:
        checked(shell, "rm", f"{_CHURN}ing")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Exit code 1 if any command failed in any turn, the one that is known to be wrong apart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1000, help="turns of each command")
    parser.add_argument("--fs", default="ext4,nilfs2", help="filesystems that are made, mounted and unmounted")
    parser.add_argument("--only", default="", help="commands whose names this expression matches")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    arguments = parser.parse_args()
    environment = project_dir() / "env" / "virtual.yaml"
    profile = read_environment(environment).profile
    card = images.build_card(_KERNEL, _ROOT, recipe=profile.recipe)
    result: dict[str, Any] = {}
    failures = 0
    with environment_target(environment, kernel=_KERNEL) as (target, _):
        board = LabgridBoard(target, {(_KERNEL, _ROOT): card})
        try:
            board.prepare(_KERNEL, _ROOT)
            shell = board.boot(1)
            measurer = Measurer(shell, board_meter(target), HostClock(), profile, 1, Phases(HostClock()))
            programs: Mapping[str, bytes] = {_AGAIN: _AGAIN_TEXT.encode(), _CHURN: _CHURN_TEXT.encode()}
            measurer.turn_to("card", programs)
            measurer.load_modules(*filesystem("ext4").modules, *filesystem("nilfs2").modules, "dm-flakey")
            checked(shell, "mkdir", "-p", SCRATCH_DIRECTORY)
            with coming_and_going(shell):
                chosen = commands(measurer.scratch, tuple(arguments.fs.split(",")))
                for name, script in chosen.items():
                    if not re.search(arguments.only, name):
                        continue
                    known = name == _AS_IT_WAS
                    times = min(arguments.times, _ENOUGH) if known else arguments.times
                    begin_s = time.monotonic()
                    failed, said = repeated(shell, script, times)
                    _say(f"{name}: {failed} of {times} failed, {time.monotonic() - begin_s:.0f} s; {said[:200]}")
                    result[name] = f"{times - failed} of {times}"
                    failures += 0 if known else failed
                if re.search(arguments.only, _CONSOLE):
                    failed, said = over_the_console(shell, arguments.times)
                    result[_CONSOLE] = f"{arguments.times - failed} of {arguments.times} {said}"
                    failures += failed
        finally:
            board.off()
    show("right, while other processes came and went", result, as_json=arguments.json)
    return 1 if failures else 0


if __name__ == "__main__":
    with lines_to(_say):
        sys.exit(main())
