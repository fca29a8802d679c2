"""Formats of kernel images: ARM's zImage, 64-bit ARM's Image, x86's bzImage. Architecture, release, unpacked form.

A kernel is unpacked when the card is made. At every boot that takes an emulated ARM a third of the time from power-on
to login, and an emulated x86 five times as long as the rest of the boot. The kernel stays the same, byte for byte.

Sources: the kernel's Documentation/arch/arm64/booting.rst, arch/x86/boot.rst and arch/riscv/boot-image-header.rst,
arch/arm/boot/compressed/head.S; U-Boot's arch/arm/lib/image.c; the Xen project's x86/HVM direct boot ABI (PVH).
"""

from __future__ import annotations

import lzma
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from fsjoule.host.unpacking import MOST_FILE_BYTES, unzstd
from fsjoule.kernels.legacy_image import legacy_image

_XZ_MAGIC: Final = b"\xfd7zXZ\0"
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class ImageFormat:
    """A format: Debian's name of its architecture, and its magic bytes with their place."""

    architecture: str
    magic: bytes
    magic_at: int

    def fits(self, image: bytes) -> bool:
        return image[self.magic_at : self.magic_at + len(self.magic)] == self.magic


_ARM64: Final = ImageFormat("arm64", b"ARMd", 56)
_ZIMAGE: Final = ImageFormat("armhf", bytes.fromhex("18286f01"), 0x24)
_BZIMAGE: Final = ImageFormat("amd64", b"HdrS", 0x202)
_RISCV: Final = ImageFormat("riscv64", b"RSC\x05", 56)


def architecture_of(image: bytes) -> str | None:
    """Debian's name of the architecture that a kernel image is for; None for an unknown format."""
    return next((each.architecture for each in (_ARM64, _ZIMAGE, _BZIMAGE, _RISCV) if each.fits(image)), None)


def kernel_release(image: bytes) -> str | None:
    """The kernel's own release; None if its compression is not supported."""
    if _BZIMAGE.fits(image):
        (offset,) = struct.unpack_from("<H", image, _BZIMAGE_RELEASE_AT)
        words = image[offset + _SECTOR_BYTES :].partition(b"\0")[0].split() if offset else []
        return words[0].decode(errors="replace") if words else None
    content = image if _ARM64.fits(image) else _zimage_content(image) or b""
    match = re.search(rb"Linux version (\S+) \(", content)
    return match[1].decode() if match else None


def unpacked_kernel(image: bytes, *, memory_base: int | None, name: str) -> tuple[str, bytes] | None:
    """File name and content of the unpacked kernel: a vmlinux of x86, or U-Boot's legacy image of an ARM's.

    `memory_base` is the start of the board's memory, because a legacy image contains the kernel's address. None if it
    cannot be unpacked; the image itself boots, too. Raises MissingToolError, HostError.
    """
    if _BZIMAGE.fits(image):
        vmlinux = _vmlinux(image)
        return None if vmlinux is None else ("vmlinux", vmlinux)
    if memory_base is None:
        return None
    kernel, offset = _zimage_content(image), text_offset(image)
    if kernel is None or offset is None:
        return None
    return "uImage", legacy_image(kernel, load_address=memory_base + offset, name=name)


# ------------------------------------------------------------------------------------------------------------ ARM, 64

_ARM64_HEADER: Final = struct.Struct("<8xQQQ")  # text_offset, image_size, flags
_ALIGN: Final = 2 * 1024 * 1024
_ANYWHERE: Final = 1 << 3  # in flags: the kernel need not be near the beginning of the memory


def arm64_run_place(image: bytes, loaded_at: int) -> tuple[int, int] | None:
    """The place to which U-Boot moves a 64-bit ARM's image before it starts it, and the bytes that it needs there.

    None for another image, and for an old kernel, which goes to the beginning of the memory wherever that is, or does
    not know its size.
    """
    if not _ARM64.fits(image):
        return None
    text_offset, size, flags = _ARM64_HEADER.unpack_from(image)
    if not size or not flags & _ANYWHERE:
        return None
    return -((text_offset - loaded_at) // _ALIGN) * _ALIGN + text_offset, size


# ------------------------------------------------------------------------------------------------------------ ARM, 32

_DECOMPRESSOR_BYTES: Final = 16384  # the code before the packed kernel ends within this
_ADD_R4: Final = 0xE2804000  # add r4, rN, #constant (ARM Architecture Reference Manual, A8.8.5, encoding A1)
_ADD_R4_MASK: Final = 0xFFF0F000
_TEXT_OFFSET_END: Final = 0x8000  # the same on all machines: Linux, arch/arm/Makefile


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, most_bytes: int, /) -> bytes: ...


_DECOMPRESSORS: Final[dict[bytes, Callable[[], _Decompressor]]] = {
    _XZ_MAGIC: lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    _GZIP_MAGIC: lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
}


def _zimage_content(zimage: bytes) -> bytes | None:
    """The kernel in a zImage, wherever in it; None if its compression is not supported."""
    return next(filter(None, (_first_packed(zimage, magic) for magic in _DECOMPRESSORS)), None)


def _first_packed(zimage: bytes, magic: bytes) -> bytes | None:
    position = zimage.find(magic)
    while position >= 0:
        # The first hits are the decompressor's own constants, or chance.
        stream = _DECOMPRESSORS[magic]()
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
    if len(zimage) < _DECOMPRESSOR_BYTES or not _ZIMAGE.fits(zimage):
        return None
    words = struct.unpack_from(f"<{_DECOMPRESSOR_BYTES // 4}I", zimage)
    values = {_immediate(word) for word in words if word & _ADD_R4_MASK == _ADD_R4}
    offsets = [value for value in values if value & 0xFFFF == _TEXT_OFFSET_END]
    return offsets[0] if len(offsets) == 1 else None


def _immediate(instruction: int) -> int:
    """The constant of an ARM data processing instruction: eight bits, rotated right by twice the upper four."""
    rotation, value = (instruction >> 8 & 0xF) * 2, instruction & 0xFF
    return (value >> rotation | value << (32 - rotation)) & 0xFFFFFFFF


# ---------------------------------------------------------------------------------------------------------------- x86

_SECTOR_BYTES: Final = 512
_BZIMAGE_RELEASE_AT: Final = 0x20E  # less 0x200
_SETUP_SECTORS: Final = struct.Struct("<B")
_SETUP_SECTORS_AT: Final = 0x1F1
_PAYLOAD: Final = struct.Struct("<II")  # offset and length; since boot protocol 2.08 (2.6.26)
_PAYLOAD_AT: Final = 0x248
_SIZE_BYTES: Final = 4  # of the unpacked kernel, behind the payload

_ELF_MAGIC: Final = b"\x7fELF\x02\x01"  # 64 bits, little endian
_ELF_PROGRAMS: Final = struct.Struct("<32xQ14xHH")  # of the header: e_phoff, e_phentsize, e_phnum
_ELF_PROGRAM: Final = struct.Struct("<I4xQ16xQ")  # p_type, p_offset, p_filesz
_ELF_NOTE: Final = struct.Struct("<III")  # sizes of name and content, type
_PT_NOTE: Final = 4
_PVH_NOTE: Final = (b"Xen\0", 18)  # XEN_ELFNOTE_PHYS32_ENTRY


def _vmlinux(bzimage: bytes) -> bytes | None:
    """The vmlinux in a bzImage; None if unsupported, or without the PVH entry by which a loader as QEMU starts it."""
    (sectors,) = _SETUP_SECTORS.unpack_from(bzimage, _SETUP_SECTORS_AT)
    offset, length = _PAYLOAD.unpack_from(bzimage, _PAYLOAD_AT)
    start = (sectors + 1) * _SECTOR_BYTES + offset
    vmlinux = _payload_content(bzimage[start : start + length])
    if vmlinux is None or len(vmlinux) >= MOST_FILE_BYTES:
        return None
    return vmlinux if _PVH_NOTE in _notes(vmlinux) else None


def _payload_content(payload: bytes) -> bytes | None:
    if payload.startswith(_ZSTD_MAGIC):
        return unzstd(payload[:-_SIZE_BYTES])
    for magic, decompressor in _DECOMPRESSORS.items():
        if payload.startswith(magic):
            try:
                return decompressor().decompress(payload, MOST_FILE_BYTES)
            except (lzma.LZMAError, zlib.error):
                return None
    return None


def _notes(elf: bytes) -> Iterator[tuple[bytes, int]]:
    """Name and type of each note of an ELF file."""
    if not elf.startswith(_ELF_MAGIC):
        return
    table, entry_bytes, entries = _ELF_PROGRAMS.unpack_from(elf)
    for number in range(entries):
        kind, offset, length = _ELF_PROGRAM.unpack_from(elf, table + number * entry_bytes)
        end = offset + length if kind == _PT_NOTE else 0
        while offset + _ELF_NOTE.size <= end:
            name_bytes, content_bytes, note = _ELF_NOTE.unpack_from(elf, offset)
            offset += _ELF_NOTE.size
            yield elf[offset : offset + name_bytes], note
            offset += _padded(name_bytes) + _padded(content_bytes)


def _padded(size: int) -> int:
    return size + -size % 4
