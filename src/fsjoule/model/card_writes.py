"""What a board writes to its card, in order: a file to which its lab appends each write while the board is on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import StorageError

_HEAD: Final = struct.Struct("<QI")  # offset and size, in bytes; the data follow


@dataclass(frozen=True, slots=True)
class CardWrite:
    """One write of the board's; `offset` is its first byte on the card."""

    offset: int
    data: bytes

    def __bytes__(self) -> bytes:
        return _HEAD.pack(self.offset, len(self.data)) + self.data


def read_card_writes(file: Path, begin: int = 0, end: int | None = None) -> Iterator[CardWrite]:
    """The writes between two places of the file, which are sizes that it has had. Raises StorageError."""
    try:
        with file.open("rb") as stream:
            stream.seek(begin)
            while (end is None or stream.tell() < end) and (head := stream.read(_HEAD.size)):
                offset, size = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 1)
                data = stream.read(size)
                if len(data) < size:
                    raise StorageError(f"the record of the card's writes is cut short: {file}")
                yield CardWrite(offset, data)
    except OSError as error:
        raise StorageError(f"the record of the card's writes cannot be read: {file}: {error}") from error
