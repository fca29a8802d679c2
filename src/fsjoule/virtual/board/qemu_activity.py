"""Activity of a running QEMU from /proc: time of the emulated CPUs, bytes moved to and from the card.

QEMU's own block statistics stay at zero for an SD card, because its model bypasses the accounting (QEMU 7.2 and 10.0).
The kernel's counters of the process are correct.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
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

    def __init__(self, pid: int, cpu_thread_ids: Sequence[int]) -> None:
        process = Path("/proc") / str(pid)
        self._io = os.open(process / "io", os.O_RDONLY | os.O_CLOEXEC)
        self._schedules: list[int] = []
        try:
            for thread in cpu_thread_ids:
                self._schedules.append(
                    os.open(process / "task" / str(thread) / "schedstat", os.O_RDONLY | os.O_CLOEXEC)
                )
        except OSError:
            self.close()
            raise

    def read(self) -> Activity:
        schedules = [os.pread(schedule, _READ_LIMIT_BYTES, 0) for schedule in self._schedules]
        return activity(schedules, os.pread(self._io, _READ_LIMIT_BYTES, 0))

    def close(self) -> None:
        for descriptor in (self._io, *self._schedules):
            with suppress(OSError):
                os.close(descriptor)


def activity(schedstats: Sequence[bytes], io: bytes) -> Activity:
    """Activity from `schedstat` of each CPU's thread (ns running, ns waiting, time slices) and a process's `io`.

    Time in which an emulated CPU waits for the host counts as busy: to the guest it is.
    """
    busy_ns = sum(int(running_ns) + int(waiting_ns) for running_ns, waiting_ns, _ in map(bytes.split, schedstats))
    fields = io.split()
    read_bytes, written_bytes, reads, writes = (int(fields[index]) for index in (1, 3, 5, 7))
    return Activity(busy_ns, _moved(read_bytes, reads), _moved(written_bytes, writes), len(schedstats))


def _moved(total_bytes: int, calls: int) -> int:
    """Bytes of the card among `total_bytes`: solves total = 512 * blocks + 8 * wake-ups, calls = blocks + wake-ups."""
    return (total_bytes - _WAKE_UP_BYTES * calls) * _BLOCK_BYTES // (_BLOCK_BYTES - _WAKE_UP_BYTES)
