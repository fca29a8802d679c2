"""Activity of a running QEMU from /proc: time of the emulated CPU, bytes moved to and from the card.

QEMU's own block statistics stay at zero for an SD card, because its model bypasses the accounting (QEMU 7.2 and 10.0).
The kernel's counters of the process are correct.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from fsjoule.virtual.board.power_model import Activity

# QEMU's SD card moves single blocks. /proc/PID/io also counts the 8-byte wake-ups between its threads.
_BLOCK_BYTES: Final = 512
_WAKE_UP_BYTES: Final = 8
_READ_LIMIT_BYTES: Final = 512


class ActivityReader:
    """Fast reader of one QEMU process's counters. Raises OSError (also from `read`) if the process is gone."""

    def __init__(self, pid: int, cpu_thread_id: int) -> None:
        process = Path("/proc") / str(pid)
        self._io = os.open(process / "io", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._schedule = os.open(process / "task" / str(cpu_thread_id) / "schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self._io)
            raise

    def read(self) -> Activity:
        schedule = os.pread(self._schedule, _READ_LIMIT_BYTES, 0)
        return activity(schedule, os.pread(self._io, _READ_LIMIT_BYTES, 0))

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._io)
        with suppress(OSError):
            os.close(self._schedule)


def activity(schedstat: bytes, io: bytes) -> Activity:
    """Activity from a thread's `schedstat` (ns running, ns waiting to run, time slices) and a process's `io`.

    Time in which the emulated CPU waits for the host counts as busy: to the guest it is.
    """
    running_ns, waiting_ns, _ = schedstat.split()
    fields = io.split()
    read_bytes, written_bytes, reads, writes = (int(fields[index]) for index in (1, 3, 5, 7))
    return Activity(int(running_ns) + int(waiting_ns), _moved(read_bytes, reads), _moved(written_bytes, writes))


def _moved(total_bytes: int, calls: int) -> int:
    """Bytes of the card among `total_bytes`: solves total = 512 * blocks + 8 * wake-ups, calls = blocks + wake-ups."""
    return (total_bytes - _WAKE_UP_BYTES * calls) * _BLOCK_BYTES // (_BLOCK_BYTES - _WAKE_UP_BYTES)
