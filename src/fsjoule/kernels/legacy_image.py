"""U-Boot's legacy image format, for a kernel or a script, and a script's commands that start a kernel. Pure.

Source: U-Boot's include/image.h.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from fsjoule.kernels.card_layout import Address

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


_START: Final = {"uImage": "bootm", "zImage": "bootz", "Image": "booti"}


def start_command(kernel_file: str) -> str | None:
    """The command that starts a kernel of this file name, which may have a prefix (`1f3a-Image`); None if unknown."""
    return _START.get(PurePosixPath(kernel_file).name.rpartition("-")[2])


def boot_commands(
    load: str, kernel: str, tree: str, initramfs: str, *, arguments: str, at: Mapping[Address, str]
) -> str:
    """Lines of a script. `load` names device and partition, `at` the addresses; the files are full paths there."""
    start = at["kernel_addr_r"], f"{at['ramdisk_addr_r']}:${{filesize}}", at["fdt_addr_r"]
    # The initramfs last: U-Boot's variable `filesize` is the length of the last file.
    return (
        f"setenv bootargs '{arguments}'\n"
        f"{load} {at['kernel_addr_r']} {kernel}\n"
        f"{load} {at['fdt_addr_r']} {tree}\n"
        f"{load} {at['ramdisk_addr_r']} {initramfs}\n"
        f"{start_command(kernel)} {' '.join(start)}\n"
    )
