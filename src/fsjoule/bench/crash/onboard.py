"""The board's programs that record a device's writes with their promises, print the record, and check states.

They are shell, in `programs/`, and need dmsetup, losetup, and busybox's awk, cmp, dd, head, md5sum, od, sha256sum and
sync. All that is kept is in the board's memory: the log, the device's content when an epoch begins, a check's writes.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.bench.onboard.marks import DIRECTORY, start_mark, stop_mark
from fsjoule.bench.scratch import SCRATCH_DIRECTORY
from fsjoule.model.filesystem import Filesystem
from fsjoule.model.mark_line import MarkLine
from fsjoule.model.write_log import END

FOLDER: Final = f"{DIRECTORY}/crash"
PROMISES: Final = f"{FOLDER}/promises"
ENTRIES: Final = f"{FOLDER}/entries"
ORDERS: Final = f"{FOLDER}/orders"
RECORDER: Final = f"{FOLDER}/record-writes"
READER: Final = f"{FOLDER}/read-log"
CHECKER: Final = f"{FOLDER}/check-states"
TRACE: Final = "/sys/kernel/tracing/instances/fsjoule-crash"
MARKER: Final = f"{TRACE}/trace_marker"
# One name for the recorded device and for each state: btrfs refuses an older filesystem of the same UUID elsewhere.
NODE: Final = "fsjoule-crash"
# The shell of busybox does not start a program for what busybox can do itself, which is most of the time of a check.
CHECK_ARGV: Final = ("sh", "-c", 'command -v busybox > /dev/null && exec busybox sh "$0"; exec sh "$0"', CHECKER)
DEVICE: Final = f"/dev/mapper/{NODE}"
_PROMISE: Final = f"{FOLDER}/promise"
_TEXTS: Final = Path(__file__).parent / "programs"


def recorder(block: int | None = None) -> dict[str, bytes]:
    """The programs that make promises, and record and read the log, by their paths on the board.

    For raw flash `block` is the number of sectors of an erase block.
    """
    if block is None:
        mark = f'dmsetup message "{NODE}" 0 mark "$1"'
        return {
            _PROMISE: _program("promise", f"mark_() {{ {mark}; }}"),
            RECORDER: _program("record-writes"),
            READER: _program("read-log"),
        }
    trace = (f"trace={TRACE}", f"block={block}", f"end={END}")
    return {
        _PROMISE: _program("promise", f'mark_() {{ echo "$1" > {MARKER}; }}'),
        RECORDER: _program("record-flash", *trace),
        READER: _program("read-flash", *trace),
    }


@dataclass(frozen=True, slots=True)
class Marks:
    """How a checker sends its marks, and their texts: the digits come with a variable."""

    line: MarkLine
    number: int

    @property
    def head(self) -> str:
        """The lines of shell above the program."""
        start, stop = (self.line.send(f"{each}$number") for each in "SE")
        return f"number={self.number}\nstart_() {{ {start}; }}\nstop_() {{ {stop}; }}"

    @property
    def heard(self) -> tuple[str, str]:
        """The marks in a trace."""
        return self.line.heard_as(start_mark(self.number)), self.line.heard_as(stop_mark(self.number))


def checker(kind: Filesystem, device: str, sectors: int, files: Sequence[str], marks: Marks) -> dict[str, bytes]:
    """The program that checks states of a device of so many sectors, by its path. `files` are all promised ones."""
    return {CHECKER: _checker("check-states", kind, device, files, f"sectors={sectors}", marks.head)}


def flash_checker(
    kind: Filesystem, device: str, block: int, changed: Sequence[int], files: Sequence[str], *, marks: Marks
) -> dict[str, bytes]:
    """The same for raw flash with erase blocks of so many sectors. `changed` are those that the program changed."""
    head = (f"trace={TRACE}", f"device={device}", f"block={block}", f"changed='{' '.join(map(str, changed))}'")
    return {CHECKER: _checker("check-flash", kind, device, files, *head, marks.head)}


def _checker(name: str, kind: Filesystem, device: str, files: Sequence[str], *head: str) -> bytes:
    programs = {
        "mount": kind.mount_argv(device, SCRATCH_DIRECTORY),
        "unmount": kind.unmount_argv(SCRATCH_DIRECTORY),
        "check": kind.check_argv(device) if kind.check else ("true",),
    }
    functions = [f"{each}_() {{ {shlex.join(argv)}; }}" for each, argv in programs.items()]
    return _program(name, *functions, *head, f"set -- {shlex.join(files)}", _text("judge"))


def _program(name: str, *head: str) -> bytes:
    names = [f"folder={FOLDER}", f"scratch={SCRATCH_DIRECTORY}", f"node={NODE}"]
    return "\n".join(["#!/bin/sh", *names, *head, _text(name)]).encode()


def _text(name: str) -> str:
    return (_TEXTS / name).read_text()
