"""What a device draws: a constant load, or a virtual board's power feed (`virtual/board/power.py` has its format)."""

from __future__ import annotations

import mmap
import os
import threading
import time
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from fsjoule.virtual.board.power import FEED_CAPACITY, FEED_HEADER, FEED_MAGIC, FEED_RECORD, FEED_RECORDS_OFFSET

Floats = npt.NDArray[np.float64]

_RECORDS: Final = np.dtype([("time_ns", "<i8"), ("volts", "<f8"), ("amperes", "<f8")])
# Records so close to the newest that the writer could come round to them are let be.
_SPARE: Final = 64
_LOOK_NS: Final = 100_000_000
_GONE_NS: Final = 500_000_000
_AWAIT_S: Final = 5e-4


class Load(Protocol):
    def known_until_ns(self) -> int:
        """Up to when it is known what is drawn, by CLOCK_MONOTONIC."""
        ...

    def amperes(self, times_ns: npt.NDArray[np.int64]) -> Floats:
        """The current at ascending moments, which are known; moments before the last ones are forgotten."""
        ...


class ConstantLoad:
    def __init__(self, amperes: float) -> None:
        self._amperes = amperes

    def known_until_ns(self) -> int:
        return time.monotonic_ns()

    def amperes(self, times_ns: npt.NDArray[np.int64]) -> Floats:
        return np.full(len(times_ns), self._amperes)


class FeedLoad:
    """Follows a board's feed, also that of a board that starts anew. Without a board nothing is drawn."""

    def __init__(self, path: Path, *, keep_s: float = 0.0) -> None:
        """`keep_s`: for how long moments before the last ones are not forgotten."""
        self._path = path
        self._keep_ns = round(keep_s * 1e9)
        self._map: mmap.mmap | None = None
        self._inode = 0
        self._looked_ns = 0
        self._taken = 0
        self._times_ns: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._amperes: Floats = np.zeros(0)

    def known_until_ns(self) -> int:
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns > _LOOK_NS:
            self._looked_ns = now_ns
            self._look_for_file()
        self._pull()
        newest_ns = int(self._times_ns[-1]) if len(self._times_ns) else 0
        # A board that is gone draws nothing; until then its next record is awaited.
        return max(newest_ns, now_ns - _GONE_NS)

    def amperes(self, times_ns: npt.NDArray[np.int64]) -> Floats:
        at = np.searchsorted(self._times_ns, times_ns)  # a record's values hold up to its own time
        drawn = np.append(self._amperes, 0.0)[at]
        if len(at):
            first = int(np.searchsorted(self._times_ns, int(times_ns[0]) - self._keep_ns))
            self._times_ns, self._amperes = self._times_ns[first:], self._amperes[first:]
        return drawn

    def _look_for_file(self) -> None:
        try:
            inode = self._path.stat().st_ino
        except OSError:
            return
        if inode == self._inode:
            return
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        magic, capacity, _, _ = FEED_HEADER.unpack_from(self._map)
        if magic != FEED_MAGIC or capacity != FEED_CAPACITY:
            raise ValueError(f"{self._path} is no power feed of this version")
        self._inode, self._taken = inode, 0

    def _pull(self) -> None:
        if self._map is None:
            return
        head = int(np.frombuffer(self._map, "<u8", 1, 16)[0])
        # The first record only says when the writer began.
        first = max(self._taken, 1, head - FEED_CAPACITY + _SPARE)
        if head <= first:
            self._taken = head
            return
        ring = np.frombuffer(self._map, _RECORDS, FEED_CAPACITY, FEED_RECORDS_OFFSET)
        records = ring[np.arange(first, head) % FEED_CAPACITY]
        self._times_ns = np.concatenate([self._times_ns, records["time_ns"]])
        self._amperes = np.concatenate([self._amperes, records["amperes"]])
        self._taken = head


class Moments:
    """A load at moments of the last second, for several threads; a moment that is not known yet is awaited."""

    def __init__(self, feed: Path) -> None:
        self._load = FeedLoad(feed, keep_s=1.0)
        self._lock = threading.Lock()

    def amperes(self, seconds: float) -> float:
        """The current at a moment by CLOCK_MONOTONIC."""
        at_ns = round(seconds * 1e9)
        while True:
            with self._lock:
                if self._load.known_until_ns() >= at_ns:
                    return float(self._load.amperes(np.array([at_ns], dtype=np.int64))[0])
            time.sleep(_AWAIT_S)


assert FEED_RECORD.size == _RECORDS.itemsize
