"""A disk whose cache does not survive a power cut, like real disks: QEMU's disk image, served from here.

Writes that the board has not flushed are in the disk's cache. At a power cut each of them reaches the medium or not, by
chance, because a cache writes back in any order. Flushed writes, and writes meant to last (FUA), are on the medium.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from fsjoule.model.card_writes import CardWrite
from fsjoule.model.labels import counted
from fsjoule.virtual.disks.flash_card import FlashCard
from fsjoule.virtual.disks.nbd import Kind, Line, Request, Server

SECTOR_BYTES: Final = 512
# When the cache is full, the oldest writes reach the medium.
CACHE_BYTES: Final = 16 << 20

_log: Final = logging.getLogger(__name__)


class Cache(StrEnum):
    """The fate of a disk's cache at a power cut."""

    KEPT = "kept"  # the whole cache reaches the medium
    LOST = "lost"  # each unflushed write reaches it or not
    TORN = "torn"  # the same, and one write reaches it only in part


@dataclass(frozen=True, slots=True)
class Loss:
    """The effect of a power cut: the number of unflushed writes, of lost ones, and of torn ones."""

    seed: int
    unflushed: int
    lost: int
    torn: int

    def __str__(self) -> str:
        torn = f", {self.torn} torn" if self.torn else ""
        return f"{counted(self.unflushed, 'unflushed write')}, {self.lost} lost{torn}; seed {self.seed}"


@dataclass(frozen=True, slots=True)
class _Write:
    """One write in the cache, with the data before it. `lasts`: it always survives."""

    offset: int
    before: bytes
    data: bytes
    lasts: bool


class LossyDisk:
    """Serves `image` on a unix socket. The file has the data that the board reads; the cache keeps the data before it.

    With a `flash` model each request takes the model's time, too. Each write is appended to the file `record`.
    If this program itself is killed, nothing is lost: that is no power cut of the board.
    """

    def __init__(
        self,
        name: str,
        image: Path,
        socket: Path,
        cache: Cache,
        flash: FlashCard | None = None,
        *,
        record: Path | None = None,
    ) -> None:
        """Open the image and listen. Raises OSError for an unreadable image, LabError. `last_loss`: the last cut."""
        self.name = name
        self.last_loss: Loss | None = None
        self.flash = flash
        self._keeps, self._tears = cache is Cache.KEPT, cache is Cache.TORN
        self._file = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        self._record = None if record is None else record.open("wb", buffering=0)
        self._cache: deque[_Write] = deque()
        self._cache_bytes = 0
        size_bytes = os.fstat(self._file).st_size
        try:
            self._server = Server(socket, size_bytes, self._serve, caches=True, trims=flash is not None)
        except BaseException:
            os.close(self._file)
            raise

    def cut(self, seed: int) -> Loss:
        """Cut its power: drop the client and a part of the cache, chosen by `seed`. It is usable again at once."""
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
        """End without a power cut: all written data stays."""
        self._server.close()
        os.close(self._file)
        if self._record is not None:
            self._record.close()

    def _serve(self, line: Line) -> None:
        for request in line.requests():
            began_s = time.monotonic()
            try:
                data = self._answer(request)
                if self.flash is not None:
                    time.sleep(max(0.0, 1e-6 * _flash_us(self.flash, request) - (time.monotonic() - began_s)))
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
            case Kind.TRIM:
                pass  # what was there may stay
            case _:
                raise OSError(errno.EINVAL, f"unknown request {request.kind}")
        return b""

    def _write(self, request: Request) -> None:
        before = os.pread(self._file, request.size, request.offset)
        if len(before) < request.size:
            raise OSError(errno.ENOSPC, "write beyond the end")
        os.pwrite(self._file, request.data, request.offset)
        if self._record is not None:
            self._record.write(bytes(CardWrite(request.offset, request.data)))
        if self._keeps:
            return
        self._cache.append(_Write(request.offset, before, request.data, request.durable))
        self._cache_bytes += request.size
        while self._cache_bytes > CACHE_BYTES:
            self._cache_bytes -= len(self._cache.popleft().data)

    def _forget_cache(self) -> None:
        self._cache.clear()
        self._cache_bytes = 0


def _flash_us(flash: FlashCard, request: Request) -> float:
    """The time of a request in the model. It sees only requests that the disk could answer."""
    match request.kind:
        case Kind.READ:
            return flash.read(request.offset, request.size)
        case Kind.WRITE:
            return flash.write(request.offset, request.size)
        case Kind.TRIM:
            flash.discard(request.offset, request.size)
        case _:
            flash.flush()
    return 0.0
