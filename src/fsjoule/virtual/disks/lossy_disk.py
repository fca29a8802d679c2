"""A disk with a cache that does not outlive a loss of power, as real ones have: QEMU's disk image, served from here.

What the board has written and not flushed since is in the disk's cache. When its power is cut, each such write is on
the medium or is not, by chance: a cache writes back in whatever order suits it. What was flushed, or written so as to
last (FUA), is there.
"""

from __future__ import annotations

import errno
import logging
import os
import random
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from fsjoule.virtual.disks.nbd import Kind, Line, Request, Server

SECTOR_BYTES: Final = 512
# The oldest writes reach the medium when the cache is full.
CACHE_BYTES: Final = 16 << 20

_log: Final = logging.getLogger(__name__)


class Cache(StrEnum):
    """What becomes of a disk's cache when its power is cut."""

    KEPT = "kept"  # all of it reaches the medium
    LOST = "lost"  # each write that was not flushed does, or does not
    TORN = "torn"  # the same, and one of them does in part, up to some sector


@dataclass(frozen=True, slots=True)
class Loss:
    """What a cut of power did: how many writes were not flushed, how many of these are gone, how many are in part."""

    seed: int
    unflushed: int
    lost: int
    torn: int

    def __str__(self) -> str:
        torn = f", {self.torn} torn" if self.torn else ""
        return f"{self.unflushed} unflushed writes, {self.lost} lost{torn}; seed {self.seed}"


@dataclass(frozen=True, slots=True)
class _Write:
    """One write in the cache: what was there before, what was written. One that has to last always does."""

    offset: int
    before: bytes
    data: bytes
    lasts: bool


class LossyDisk:
    """Serves `image` at a unix socket. The file has what the board reads; what could be lost is kept apart.

    If this program itself is killed, nothing is lost: that is no cut of the board's power.
    """

    def __init__(self, name: str, image: Path, socket: Path, cache: Cache) -> None:
        """Open the image and listen. Raises OSError for an image that cannot be opened, LabError.

        `last_loss` is what the last cut of power did.
        """
        self.name = name
        self.last_loss: Loss | None = None
        self._tears = cache is Cache.TORN
        self._file = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        self._cache: deque[_Write] = deque()
        self._cache_bytes = 0
        size_bytes = os.fstat(self._file).st_size
        try:
            self._server = Server(socket, size_bytes, self._serve, caches=True)
        except BaseException:
            os.close(self._file)
            raise

    def cut(self, seed: int) -> Loss:
        """Cut its power: the client goes, and of its cache the part that `seed` gives. It can be used again at once."""
        self._server.hang_up()
        chance = random.Random(f"{seed} {self.name}")  # noqa: S311 - a recorded loss, not a secret
        writes = list(self._cache)
        self._forget_cache()
        for write in reversed(writes):
            os.pwrite(self._file, write.before, write.offset)
        survives = [write.lasts or chance.random() < 0.5 for write in writes]  # noqa: PLR2004 - an even chance
        tearable = [i for i, write in enumerate(writes) if not write.lasts and len(write.data) > SECTOR_BYTES]
        torn = chance.choice(tearable) if self._tears and tearable else None
        for i, write in enumerate(writes):
            if i == torn:
                sectors = chance.randrange(1, -(-len(write.data) // SECTOR_BYTES))
                os.pwrite(self._file, write.data[: sectors * SECTOR_BYTES], write.offset)
            elif survives[i]:
                os.pwrite(self._file, write.data, write.offset)
        lost = sum(not survived for i, survived in enumerate(survives) if i != torn)
        self.last_loss = loss = Loss(seed, sum(not write.lasts for write in writes), lost, int(torn is not None))
        _log.info("disk %s: power cut: %s", self.name, loss)
        return loss

    def close(self) -> None:
        """End without a cut: all that was written stays."""
        self._server.close()
        os.close(self._file)

    def _serve(self, line: Line) -> None:
        for request in line.requests():
            try:
                data = self._answer(request)
            except OSError as error:
                _log.warning("disk %s: %s", self.name, error)
                line.reply(request, error=error.errno or errno.EIO)
            else:
                line.reply(request, data)

    def _answer(self, request: Request) -> bytes:
        match request.kind:
            case Kind.READ:
                return os.pread(self._file, request.size, request.offset).ljust(request.size, b"\0")
            case Kind.WRITE:
                self._write(request)
            case Kind.FLUSH:
                self._forget_cache()
            case _:
                raise OSError(errno.EINVAL, f"request {request.kind} is not known")
        return b""

    def _write(self, request: Request) -> None:
        before = os.pread(self._file, request.size, request.offset)
        if len(before) < request.size:
            raise OSError(errno.ENOSPC, "written beyond the end")
        os.pwrite(self._file, request.data, request.offset)
        self._cache.append(_Write(request.offset, before, request.data, request.durable))
        self._cache_bytes += request.size
        while self._cache_bytes > CACHE_BYTES:
            self._cache_bytes -= len(self._cache.popleft().data)

    def _forget_cache(self) -> None:
        self._cache.clear()
        self._cache_bytes = 0
