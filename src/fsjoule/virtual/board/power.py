"""The power of a virtual board: the model, QEMU's activity that it takes, and the feed to the emulated INA219.

``P = idle + cpu * busy + read + written``. `busy` is the share of time in which the emulated CPU ran, or would have run
if the host had let it. The card's part is energy per moved byte, so that no sampling interval loses or doubles any of
it. The defaults span about the range of the filesystem energy study for an i.MX6ULL board with eMMC: 1.15 W to 1.40 W.

The activity comes from /proc: QEMU's own block statistics stay at zero for an SD card, because its model bypasses the
accounting (QEMU 7.2 and 10.0). The kernel's counters of the process are correct.

The feed is a ring in a memory-mapped file. Header, 64 bytes, little endian: ``8s magic "FSJFEED1" | u32 capacity | u32
0 | u64 head``, the rest zero. `head` counts all records ever written. Record i is at ``64 + 24 * (i % capacity)``:
``i64 time_ns | f64 volts | f64 amperes``. Its values hold from the end of the record before until `time_ns`
(CLOCK_MONOTONIC).
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from fsjoule.host.clock import prefer_this_thread
from fsjoule.model import MIB

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# QEMU's SD card moves single blocks. /proc/PID/io also counts the 8-byte wake-ups between its threads.
_BLOCK_BYTES: Final = 512
_WAKE_UP_BYTES: Final = 8
_READ_LIMIT_BYTES: Final = 512
FEED_MAGIC: Final = b"FSJFEED1"
FEED_CAPACITY: Final = 16384
FEED_HEADER: Final = struct.Struct("<8sIIQ")
FEED_RECORD: Final = struct.Struct("<qdd")
FEED_RECORDS_OFFSET: Final = 64
_HEAD_SLICE: Final = slice(16, 24)
_PERIOD_NS: Final = 1_000_000
# A power that stays the same needs fewer records. The meter's samples come so much later.
_STEADY_S: Final = 0.01
# `watts` is smoothed over about this time.
_DISPLAY_NS: Final = 200_000_000
_STOP_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class PowerCoefficients:
    """The model's numbers. `volts` is the supply; `cpu_w` is the power that a CPU at full load adds to `idle_w`."""

    volts: _Positive = 5.0
    idle_w: _NotNegative = 1.10
    cpu_w: _NotNegative = 0.22
    card_read_mj_per_mib: _NotNegative = 3.0
    card_write_mj_per_mib: _NotNegative = 6.0


@dataclass(frozen=True, slots=True)
class Activity:
    """QEMU's activity since its start, as growing counters; the busy times of all `cpus` add up."""

    cpu_busy_ns: int
    card_read_bytes: int
    card_written_bytes: int
    cpus: int = 1


NO_ACTIVITY = Activity(0, 0, 0)


class PowerModel:
    """Power over consecutive intervals of one running board."""

    def __init__(self, coefficients: PowerCoefficients, start: Activity = NO_ACTIVITY) -> None:
        """`start` has the counters at the start of the first interval."""
        self._coefficients = coefficients
        self._last = start
        self._owed_busy_ns = 0

    def watts(self, activity: Activity, interval_ns: int) -> float:
        """Mean power over the interval that ends now, in which the counters grew to `activity`.

        The scheduler books a thread's time in ticks of 1 to 10 ms, and its waiting time at the end of the wait. Busy
        time beyond the interval is therefore kept for the next one: the energy comes up to a tick late.
        """
        last, self._last = self._last, activity
        self._owed_busy_ns += activity.cpu_busy_ns - last.cpu_busy_ns
        busy_ns = min(self._owed_busy_ns, interval_ns * activity.cpus)
        self._owed_busy_ns -= busy_ns
        k = self._coefficients
        card_mj = (
            k.card_read_mj_per_mib * (activity.card_read_bytes - last.card_read_bytes)
            + k.card_write_mj_per_mib * (activity.card_written_bytes - last.card_written_bytes)
        ) / MIB
        return k.idle_w + (k.cpu_w * busy_ns + card_mj * 1e6) / interval_ns


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


class FeedWriter:
    """Writes records for a reader in another process, without waiting for it."""

    def __init__(self, path: Path) -> None:
        """Make a new file next to the old one and rename it: a reader never maps a file without its header."""
        size_bytes = FEED_RECORDS_OFFSET + FEED_CAPACITY * FEED_RECORD.size
        beside = path.with_name(path.name + ".new")
        with beside.open("wb+") as file:
            file.truncate(size_bytes)
            self._map = mmap.mmap(file.fileno(), size_bytes)
        FEED_HEADER.pack_into(self._map, 0, FEED_MAGIC, FEED_CAPACITY, 0, 0)
        beside.replace(path)
        self._head = 0
        # One aligned store: struct writes byte by byte, and a reader must never see half of a new head.
        self._head_word = memoryview(self._map)[_HEAD_SLICE].cast("Q")

    def append(self, time_ns: int, volts: float, amperes: float) -> None:
        """Add one record. `time_ns` must grow from call to call."""
        FEED_RECORD.pack_into(
            self._map, FEED_RECORDS_OFFSET + FEED_RECORD.size * (self._head % FEED_CAPACITY), time_ns, volts, amperes
        )
        self._head += 1
        self._head_word[0] = self._head

    @property
    def head(self) -> int:
        return self._head

    def close(self) -> None:
        self._head_word.release()
        self._map.close()


class PowerFeed:
    """The thread that feeds the meter from construction to `close`, 1000 times per second while QEMU runs.

    The board starts switched off.
    """

    def __init__(self, path: Path, coefficients: PowerCoefficients) -> None:
        self._feed = FeedWriter(path)
        self._coefficients = coefficients
        self._changed = threading.Condition()
        self._volts = 0.0
        self._steady_w = 0.0
        self._reader: ActivityReader | None = None
        self._model = PowerModel(coefficients)
        self._stopping = False
        self._last_ns = time.monotonic_ns()
        self.watts = 0.0
        self._thread = threading.Thread(target=self._run, name="power feed", daemon=True)
        self._thread.start()

    @property
    def records(self) -> int:
        return self._feed.head

    @property
    def volts(self) -> float:
        return self._volts

    def switch_off(self) -> None:
        """Cut the supply: 0 V, 0 A."""
        self._set(0.0, 0.0, None)

    def halted(self) -> None:
        """Supply without current: the board has switched itself off."""
        self._set(self._coefficients.volts, 0.0, None)

    def idle(self) -> None:
        """Supply without a running CPU: QEMU is starting, or there is nothing to boot."""
        self._set(self._coefficients.volts, self._coefficients.idle_w, None)

    def follow(self, reader: ActivityReader | None) -> None:
        """Follow a running QEMU. This state's end closes the reader. Raises OSError if QEMU is gone already."""
        self._set(self._coefficients.volts, self._coefficients.idle_w, reader)

    def close(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(_STOP_TIMEOUT_S)
        self._set(0.0, 0.0, None)
        self._feed.close()

    def _set(self, volts: float, steady_w: float, reader: ActivityReader | None) -> None:
        model = PowerModel(self._coefficients, reader.read()) if reader is not None else self._model
        with self._changed:
            self._append()  # what was until now
            previous, self._reader = self._reader, reader
            self._volts, self._steady_w, self._model = volts, steady_w, model
            self._changed.notify()
        if previous is not None:
            previous.close()

    def _run(self) -> None:
        prefer_this_thread()
        next_ns = time.monotonic_ns()
        while not self._stopping:
            with self._changed:
                self._append()
                if self._reader is None and not self._stopping:
                    self._changed.wait(_STEADY_S)
                    next_ns = time.monotonic_ns()
                    continue
            next_ns += _PERIOD_NS
            if (left_ns := next_ns - time.monotonic_ns()) > 0:
                time.sleep(left_ns * 1e-9)
            else:
                next_ns -= left_ns

    def _append(self) -> None:
        """Add a record from the last one until now. The caller holds the lock."""
        now_ns = time.monotonic_ns()
        interval_ns = now_ns - self._last_ns
        if interval_ns <= 0:
            return
        volts, watts = self._volts, self._power(interval_ns)
        self._feed.append(now_ns, volts, watts / volts if volts else 0.0)
        self.watts += (watts - self.watts) * min(1.0, interval_ns / _DISPLAY_NS)
        self._last_ns = now_ns

    def _power(self, interval_ns: int) -> float:
        if self._reader is None:
            return self._steady_w
        try:
            return self._model.watts(self._reader.read(), interval_ns)
        except (OSError, ValueError):
            # QEMU has ended, but the board has not noticed yet.
            return self._steady_w
