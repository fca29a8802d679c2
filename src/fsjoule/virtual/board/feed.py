"""The power feed: a ring in a memory-mapped file, from the virtual board to the emulated INA219 of the meter.

Header, 64 bytes, little endian: ``8s magic "FSJFEED1" | u32 capacity | u32 0 | u64 head``, the rest zero. `head` counts
all records ever written. Record i is at ``64 + 24 * (i % capacity)``: ``i64 time_ns | f64 volts | f64 amperes``. Its
values hold from the end of the record before until `time_ns` (CLOCK_MONOTONIC).
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final

MAGIC: Final = b"FSJFEED1"
CAPACITY: Final = 16384
HEADER: Final = struct.Struct("<8sIIQ")
RECORD: Final = struct.Struct("<qdd")
RECORDS_OFFSET: Final = 64

_HEAD_SLICE: Final = slice(16, 24)


class FeedWriter:
    """Writes records for a reader in another process, without waiting for it."""

    def __init__(self, path: Path) -> None:
        """Make a new file next to the old one and rename it: a reader never maps a file without its header."""
        size_bytes = RECORDS_OFFSET + CAPACITY * RECORD.size
        beside = path.with_name(path.name + ".new")
        with beside.open("wb+") as file:
            file.truncate(size_bytes)
            self._map = mmap.mmap(file.fileno(), size_bytes)
        HEADER.pack_into(self._map, 0, MAGIC, CAPACITY, 0, 0)
        beside.replace(path)
        self._head = 0
        # One aligned store: struct writes byte by byte, and a reader must never see half of a new head.
        self._head_word = memoryview(self._map)[_HEAD_SLICE].cast("Q")

    def append(self, time_ns: int, volts: float, amperes: float) -> None:
        """Add one record. `time_ns` must grow from call to call."""
        RECORD.pack_into(self._map, RECORDS_OFFSET + RECORD.size * (self._head % CAPACITY), time_ns, volts, amperes)
        self._head += 1
        self._head_word[0] = self._head

    @property
    def head(self) -> int:
        return self._head

    def close(self) -> None:
        self._head_word.release()
        self._map.close()
