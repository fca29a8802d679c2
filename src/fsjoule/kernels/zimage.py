"""Unpacks an ARM zImage when the card is made, so that the board need not unpack it at every boot. Pure.

To unpack it takes an emulated CPU a third of the time from power-on to login. The kernel stays the same, byte for byte.
It is wrapped as U-Boot's legacy image, which contains its address in memory.
"""

from __future__ import annotations

import lzma
import re
import struct
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from fsjoule.host.unpacking import MOST_FILE_BYTES
from fsjoule.kernels.legacy_image import legacy_image

_MAGIC: Final = bytes.fromhex("18286f01")  # Linux: arch/arm/boot/compressed/head.S
_MAGIC_AT: Final = 0x24
_XZ_MAGIC: Final = b"\xfd7zXZ\0"
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_DECOMPRESSOR_BYTES: Final = 16384  # the code before the packed kernel ends within this

_ADD_R4: Final = 0xE2804000  # add r4, rN, #constant (ARM Architecture Reference Manual, A8.8.5, encoding A1)
_ADD_R4_MASK: Final = 0xFFF0F000
_TEXT_OFFSET_END: Final = 0x8000  # the same on all machines: Linux, arch/arm/Makefile


def unpacked_kernel(zimage: bytes, *, memory_base: int, name: str) -> bytes | None:
    """The kernel of a zImage as an uncompressed legacy image; the board's memory begins at `memory_base`.

    None if it is not a zImage or its compression is not supported; the zImage itself boots, too.
    """
    kernel, offset = _kernel(zimage), text_offset(zimage)
    if kernel is None or offset is None:
        return None
    return legacy_image(kernel, load_address=memory_base + offset, name=name)


def is_zimage(image: bytes) -> bool:
    return image[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC


def kernel_release(zimage: bytes) -> str | None:
    """The release of the kernel in a zImage; None if its compression is not supported."""
    match = re.search(rb"Linux version (\S+) \(", _kernel(zimage) or b"")
    return match[1].decode() if match else None


def _kernel(zimage: bytes) -> bytes | None:
    return _unpacked(zimage, _XZ_MAGIC, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)) or _unpacked(
        zimage, _GZIP_MAGIC, lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)
    )


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, most_bytes: int, /) -> bytes: ...


def _unpacked(zimage: bytes, magic: bytes, decompressor: Callable[[], _Decompressor]) -> bytes | None:
    position = zimage.find(magic)
    while position >= 0:
        # The first hits are the decompressor's own constants, or chance.
        stream = decompressor()
        try:
            kernel = stream.decompress(zimage[position:], MOST_FILE_BYTES)
        except (lzma.LZMAError, zlib.error):
            kernel = b""
        if stream.eof and kernel:
            return kernel
        if len(kernel) >= MOST_FILE_BYTES:
            return None
        position = zimage.find(magic, position + 1)
    return None


def text_offset(zimage: bytes) -> int | None:
    """The kernel's offset from the start of memory (TEXT_OFFSET), from the decompressor's code.

    It computes the address with `add r4, rN, #TEXT_OFFSET`. None unless there is exactly one such instruction.
    """
    if len(zimage) < _DECOMPRESSOR_BYTES or not is_zimage(zimage):
        return None
    words = struct.unpack_from(f"<{_DECOMPRESSOR_BYTES // 4}I", zimage)
    values = {_immediate(word) for word in words if word & _ADD_R4_MASK == _ADD_R4}
    offsets = [value for value in values if value & 0xFFFF == _TEXT_OFFSET_END]
    return offsets[0] if len(offsets) == 1 else None


def _immediate(instruction: int) -> int:
    """The constant of an ARM data processing instruction: eight bits, rotated right by twice the upper four."""
    rotation, value = (instruction >> 8 & 0xF) * 2, instruction & 0xFF
    return (value >> rotation | value << (32 - rotation)) & 0xFFFFFFFF
