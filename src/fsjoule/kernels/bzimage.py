"""An x86 kernel (bzImage), and the vmlinux unpacked from it for a start by PVH when the card is made.

To unpack it at boot takes an emulated CPU five times as long as the rest of the boot. A loader of ELF files with a PVH
entry, such as QEMU, starts the vmlinux directly.

Sources: the kernel's Documentation/arch/x86/boot.rst, and the Xen project's x86/HVM direct boot ABI (PVH).
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Iterator
from typing import Final

from fsjoule.host.unpacking import MOST_FILE_BYTES, unzstd

_MAGIC: Final = b"HdrS"
_MAGIC_OFFSET: Final = 0x202
_SECTOR_BYTES: Final = 512
_SETUP_SECTORS: Final = struct.Struct("<B")
_SETUP_SECTORS_OFFSET: Final = 0x1F1
_RELEASE_OFFSET: Final = 0x20E  # less 0x200
_PAYLOAD: Final = struct.Struct("<II")  # offset and length; since boot protocol 2.08 (2.6.26)
_PAYLOAD_OFFSET: Final = 0x248
_XZ_MAGIC: Final = b"\xfd7zXZ\0"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SIZE_BYTES: Final = 4  # of the unpacked kernel, behind the payload

_ELF_MAGIC: Final = b"\x7fELF\x02\x01"  # 64 bits, little endian
_ELF_PROGRAMS: Final = struct.Struct("<32xQ14xHH")  # of the header: e_phoff, e_phentsize, e_phnum
_ELF_PROGRAM: Final = struct.Struct("<I4xQ16xQ")  # p_type, p_offset, p_filesz
_ELF_NOTE: Final = struct.Struct("<III")  # sizes of name and content, type
_PT_NOTE: Final = 4
_PVH_NOTE: Final = (b"Xen\0", 18)  # XEN_ELFNOTE_PHYS32_ENTRY


def is_bzimage(image: bytes) -> bool:
    return image[_MAGIC_OFFSET : _MAGIC_OFFSET + len(_MAGIC)] == _MAGIC


def release(image: bytes) -> str | None:
    """The release in a bzImage's header, or None."""
    (offset,) = struct.unpack_from("<H", image, _RELEASE_OFFSET)
    text = image[offset + _SECTOR_BYTES :].partition(b"\0")[0] if offset else b""
    return text.split()[0].decode(errors="replace") if text.split() else None


def unpacked(image: bytes) -> bytes | None:
    """The vmlinux in a bzImage; None if unsupported or without PVH entry. Raises MissingToolError, HostError."""
    (sectors,) = _SETUP_SECTORS.unpack_from(image, _SETUP_SECTORS_OFFSET)
    offset, length = _PAYLOAD.unpack_from(image, _PAYLOAD_OFFSET)
    start = (sectors + 1) * _SECTOR_BYTES + offset
    vmlinux = _decompressed(image[start : start + length])
    if vmlinux is None or len(vmlinux) >= MOST_FILE_BYTES:
        return None
    return vmlinux if has_pvh_entry(vmlinux) else None


def _decompressed(payload: bytes) -> bytes | None:
    try:
        if payload.startswith(_XZ_MAGIC):
            return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload, MOST_FILE_BYTES)
        if payload.startswith(_GZIP_MAGIC):
            return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(payload, MOST_FILE_BYTES)
    except (lzma.LZMAError, zlib.error):
        return None
    if payload.startswith(_ZSTD_MAGIC):
        return unzstd(payload[:-_SIZE_BYTES])
    return None


def has_pvh_entry(vmlinux: bytes) -> bool:
    """Whether an ELF file has the note with its PVH entry."""
    return any(note == _PVH_NOTE for note in _notes(vmlinux))


def _notes(elf: bytes) -> Iterator[tuple[bytes, int]]:
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
