"""The kernel of a 64-bit ARM, `Image`: not packed, with its true size in its header. Pure.

Source: the kernel's Documentation/arch/arm64/booting.rst; U-Boot's arch/arm/lib/image.c.
"""

from __future__ import annotations

import re
import struct
from typing import Final

_MAGIC: Final = b"ARMd"
_MAGIC_AT: Final = 56
_HEADER: Final = struct.Struct("<8xQQQ")  # text_offset, image_size, flags
_ALIGN: Final = 2 * 1024 * 1024
_ANYWHERE: Final = 1 << 3  # in flags: the kernel need not be near the beginning of the memory


def is_image(image: bytes) -> bool:
    return image[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC


def release(image: bytes) -> str | None:
    match = re.search(rb"Linux version (\S+) \(", image)
    return match[1].decode() if match else None


def placed(image: bytes, loaded_at: int) -> tuple[int, int] | None:
    """The place to which U-Boot moves an image before it starts it, and the bytes that it needs there.

    None for an old kernel, which goes to the beginning of the memory wherever that is, or does not know its size.
    """
    text_offset, size, flags = _HEADER.unpack_from(image)
    if not size or not flags & _ANYWHERE:
        return None
    return -((text_offset - loaded_at) // _ALIGN) * _ALIGN + text_offset, size
