"""U-Boot's legacy image format: a kernel, or a script. Pure. Source: U-Boot's include/image.h."""

from __future__ import annotations

import struct
import zlib
from typing import Final

LEGACY_MAGIC: Final = 0x27051956
_OS_LINUX: Final = 5
_ARCH_ARM: Final = 2
_KERNEL: Final = 2
_SCRIPT: Final = 6
_NOT_COMPRESSED: Final = 0


def legacy_image(content: bytes, *, load_address: int, name: str, kind: int = _KERNEL) -> bytes:
    """A legacy image: a 64-byte header, big endian, without a time, and the unchanged content."""

    def header(checksum: int) -> bytes:
        return struct.pack(
            ">7I4B32s",
            *(LEGACY_MAGIC, checksum, 0, len(content), load_address, load_address, zlib.crc32(content)),
            *(_OS_LINUX, _ARCH_ARM, kind, _NOT_COMPRESSED),
            name.encode()[:31],
        )

    return header(zlib.crc32(header(0))) + content


def legacy_script(text: str) -> bytes:
    """A script for U-Boot's command `source`, as boot.scr."""
    content = text.encode()
    # The list of the sizes of its parts ends with a zero.
    return legacy_image(struct.pack(">2I", len(content), 0) + content, load_address=0, name="boot", kind=_SCRIPT)
