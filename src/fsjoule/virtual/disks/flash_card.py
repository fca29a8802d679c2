"""A model of a card's flash memory: where its controller puts pages, what it copies meanwhile, and what that costs.

A page map (FTL) with greedy garbage collection, a cache of blocks with one bit a cell (pSLC), and wear. It holds no
data. Write amplification in steady state follows the closed form for uniform random writes (Desnoyers, Analytic
Modeling of SSD Write Performance, SYSTOR 2012; Bux and Iliadis, 2010): docs/virtual-board.md.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

_NOWHERE: Final = -1
_WEAR_BITS: Final = 32
_FREE_BLOCKS: Final = 2  # below it blocks are collected


@dataclass(frozen=True, slots=True)
class FlashGeometry:
    """The memory of a card: `spare` is its share above the size that the host sees, at least three blocks.

    `cache_bytes` of it is the pSLC cache, 0 for none; each of its blocks holds a `cache_ratio`th. The defaults are of
    the order of cheap TLC. An erase block has `endurance` erases.
    """

    page_bytes: int = 16384
    block_pages: int = 128
    spare: float = 0.07
    cache_bytes: int = 0
    cache_ratio: int = 3
    endurance: int = 3000
    read_us: float = 60.0
    program_us: float = 700.0
    cache_program_us: float = 200.0
    erase_us: float = 4000.0


@dataclass
class FlashCounters:
    """What a card has done in its life. Bytes of the flash are whole pages; `busy_us` is the time for all of it."""

    host_read_bytes: int = 0
    host_written_bytes: int = 0
    flash_written_bytes: int = 0
    copied_bytes: int = 0
    erases: int = 0
    busy_us: float = 0.0

    @property
    def write_amplification(self) -> float:
        """Bytes of the flash for each byte of the host; 0 before the first write."""
        return self.flash_written_bytes / self.host_written_bytes if self.host_written_bytes else 0.0


@dataclass
class FlashCard:
    """The controller of a card of `size_bytes`. Each request returns its time in microseconds.

    A write of a part of a page reads the page first, unless it continues the page that was written last.
    """

    size_bytes: int
    geometry: FlashGeometry = field(default_factory=FlashGeometry)
    counters: FlashCounters = field(default_factory=FlashCounters)

    def __post_init__(self) -> None:
        one = self.geometry
        self._pages = -(-self.size_bytes // one.page_bytes)
        least = -(-self._pages // one.block_pages) + _FREE_BLOCKS + 1
        self.blocks: int = max(least, round(self._pages * (1 + one.spare) / one.block_pages))
        physical = self.blocks * one.block_pages
        self._where: npt.NDArray[np.int64] = np.full(self._pages, _NOWHERE, np.int64)
        self._holds: npt.NDArray[np.int64] = np.full(physical, _NOWHERE, np.int64)
        self._valid: npt.NDArray[np.int64] = np.zeros(self.blocks, np.int64)
        # Blocks that are free or still being written are no victims.
        self._closed: npt.NDArray[np.bool_] = np.zeros(self.blocks, np.bool_)
        self.erases: npt.NDArray[np.int64] = np.zeros(self.blocks, np.int64)
        self._free: list[tuple[int, int]] = [(0, block) for block in range(self.blocks)]
        self._next: int = 0
        self._end: int = 0
        self._cache: deque[tuple[int, int]] = deque()
        self._cached: dict[int, int] = {}
        self._cache_pages = one.cache_bytes // one.page_bytes
        self._written, self._open_page, self._open_until = 0, _NOWHERE, 0

    @property
    def wear(self) -> float:
        """The share of its life that the most worn block has had."""
        return float(self.erases.max()) / self.geometry.endurance

    def write(self, offset: int, size: int) -> float:
        """Raises ValueError for a range that the card does not have."""
        before_us, page_bytes = self.counters.busy_us, self.geometry.page_bytes
        self.counters.host_written_bytes += size
        for page in self._range(offset, size):
            begin, end = max(offset, page * page_bytes), min(offset + size, (page + 1) * page_bytes)
            if page == self._open_page and begin == self._open_until:
                self._open_until = end  # still in the controller's memory
                continue
            if end - begin < page_bytes and self._is_there(page):
                self.counters.busy_us += self.geometry.read_us
            self._open_page, self._open_until = page, end
            self._put(page)
        return self.counters.busy_us - before_us

    def read(self, offset: int, size: int) -> float:
        """Raises ValueError for a range that the card does not have."""
        before_us = self.counters.busy_us
        self.counters.host_read_bytes += size
        self.counters.busy_us += self.geometry.read_us * sum(map(self._is_there, self._range(offset, size)))
        return self.counters.busy_us - before_us

    def discard(self, offset: int, size: int) -> None:
        """Forget whole pages. Raises ValueError for a range that the card does not have."""
        page_bytes = self.geometry.page_bytes
        for page in self._range(offset, size):
            if offset <= page * page_bytes and (page + 1) * page_bytes <= offset + size:
                self._cached.pop(page, None)
                self._invalidate(page)

    def flush(self) -> None:
        """The page that was written last leaves the controller's memory."""
        self._open_page = _NOWHERE

    def facts(self) -> dict[str, float]:
        """Counters, write amplification and wear, by name."""
        more = {"write_amplification": self.counters.write_amplification, "wear": self.wear}
        return {**asdict(self.counters), **{name: round(value, 6) for name, value in more.items()}}

    def _range(self, offset: int, size: int) -> range:
        if offset < 0 or size < 0 or offset + size > self.size_bytes:
            raise ValueError(f"{size} bytes at {offset}: the card has {self.size_bytes}")
        page_bytes = self.geometry.page_bytes
        return range(offset // page_bytes, -(-(offset + size) // page_bytes))

    def _is_there(self, page: int) -> bool:
        return page in self._cached or self._where[page] != _NOWHERE

    def _put(self, page: int) -> None:
        """Write a page of the host's: into the cache if there is one."""
        if not self._cache_pages:
            self._program(page)
            return
        self._written += 1
        self._cache.append((self._written, page))
        self._cached[page] = self._written
        self._invalidate(page)
        self._charge(self.geometry.cache_program_us)
        if len(self._cache) >= self._cache_pages:
            self._fold()

    def _fold(self) -> None:
        """Empty the oldest block of the cache: what is still valid in it goes to its place."""
        for _ in range(max(1, self.geometry.block_pages // self.geometry.cache_ratio)):
            if not self._cache:
                break
            written, page = self._cache.popleft()
            if self._cached.get(page) == written:
                del self._cached[page]
                self._copy(page)
        # Its blocks last longer, with one bit a cell: their wear is not counted, only their time.
        self.counters.erases += 1
        self.counters.busy_us += self.geometry.erase_us

    def _copy(self, page: int) -> None:
        self.counters.copied_bytes += self.geometry.page_bytes
        self.counters.busy_us += self.geometry.read_us
        self._program(page)

    def _program(self, page: int) -> None:
        """Write a page to the next place, and collect a block if few are free."""
        self._invalidate(page)
        place = self._place()
        self._where[page], self._holds[place] = place, page
        self._valid[place // self.geometry.block_pages] += 1
        self._charge(self.geometry.program_us)
        while len(self._free) < _FREE_BLOCKS:
            self._collect()

    def _charge(self, program_us: float) -> None:
        self.counters.flash_written_bytes += self.geometry.page_bytes
        self.counters.busy_us += program_us

    def _place(self) -> int:
        if self._next == self._end:
            if self._end:
                self._closed[self._end // self.geometry.block_pages - 1] = True
            block = heapq.heappop(self._free)[1]  # the least worn
            self._next = block * self.geometry.block_pages
            self._end = self._next + self.geometry.block_pages
        self._next += 1
        return self._next - 1

    def _collect(self) -> None:
        """Erase the block with the fewest valid pages, once they are copied; of equal ones the least worn."""
        pages = self.geometry.block_pages
        cost = np.where(self._closed, (self._valid << _WEAR_BITS) + self.erases, np.iinfo(np.int64).max)
        victim = int(np.argmin(cost))
        self._closed[victim] = False
        for place in range(victim * pages, (victim + 1) * pages):
            page = int(self._holds[place])
            if page == _NOWHERE:
                continue
            self.counters.copied_bytes += self.geometry.page_bytes
            self.counters.busy_us += self.geometry.read_us
            self._invalidate(page)
            new = self._place()
            self._where[page], self._holds[new] = new, page
            self._valid[new // pages] += 1
            self._charge(self.geometry.program_us)
        self.erases[victim] += 1
        self.counters.erases += 1
        self.counters.busy_us += self.geometry.erase_us
        heapq.heappush(self._free, (int(self.erases[victim]), victim))

    def _invalidate(self, page: int) -> None:
        place = int(self._where[page])
        if place != _NOWHERE:
            self._where[page] = self._holds[place] = _NOWHERE
            self._valid[place // self.geometry.block_pages] -= 1
