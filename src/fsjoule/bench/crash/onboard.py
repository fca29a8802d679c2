"""The board's programs that record a device's writes with their promises, print the record, and check states.

They are shell, in `programs/`, and need dmsetup, losetup, and busybox's awk, cmp, dd, head, md5sum, od, sha256sum and
sync. All that is kept is in the board's memory: the log, the device's content when an epoch begins, a check's writes.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fsjoule.bench.onboard.marks import DIRECTORY
from fsjoule.bench.scratch import SCRATCH_DIRECTORY

FOLDER: Final = f"{DIRECTORY}/crash"
PROMISES: Final = f"{FOLDER}/promises"
ENTRIES: Final = f"{FOLDER}/entries"
ORDERS: Final = f"{FOLDER}/orders"
RECORDER: Final = f"{FOLDER}/record-writes"
READER: Final = f"{FOLDER}/read-log"
CHECKER: Final = f"{FOLDER}/check-states"
# One name for the recorded device and for each state: btrfs refuses an older filesystem of the same UUID elsewhere.
NODE: Final = "fsjoule-crash"
# The shell of busybox does not start a program for what busybox can do itself, which is most of the time of a check.
CHECK_ARGV: Final = ("sh", "-c", 'command -v busybox > /dev/null && exec busybox sh "$0"; exec sh "$0"', CHECKER)
DEVICE: Final = f"/dev/mapper/{NODE}"
_PROMISE: Final = f"{FOLDER}/promise"
_TEXTS: Final = Path(__file__).parent / "programs"


def programs() -> dict[str, bytes]:
    """The programs that record and read the log, by their paths on the board."""
    return {path: _program(path) for path in (_PROMISE, RECORDER, READER)}


def checker(
    sectors: int, *, mount: Sequence[str], unmount: Sequence[str], check: Sequence[str], files: Sequence[str]
) -> dict[str, bytes]:
    """The program that checks states of a device of so many sectors, by its path. `files` are all promised ones."""
    head = [
        f"mount_() {{ {shlex.join(mount)}; }}",
        f"unmount_() {{ {shlex.join(unmount)}; }}",
        f"check_() {{ {shlex.join(check) or 'true'}; }}",
        f"sectors={sectors}",
        f"set -- {shlex.join(files)}",
    ]
    return {CHECKER: _program(CHECKER, *head)}


def _program(path: str, *head: str) -> bytes:
    names = [f"folder={FOLDER}", f"scratch={SCRATCH_DIRECTORY}", f"node={NODE}"]
    text = (_TEXTS / path.rpartition("/")[2]).read_text()
    return "\n".join(["#!/bin/sh", *names, *head, text]).encode()
