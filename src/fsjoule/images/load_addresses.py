"""Where a boot loader loads kernel, initramfs and device tree, and whether they have room there. Pure.

`sysboot` loads each to its own address. If a file is longer than the space up to the next one, a part of it is
overwritten: U-Boot then says "Bad Data CRC", or nothing at all.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from fsjoule.kernels import arm64image
from fsjoule.kernels.card_layout import Address
from fsjoule.kernels.legacy_image import LEGACY_MAGIC
from fsjoule.model import MIB

_DEFAULT: Final = re.compile(rb"\0(kernel_addr_r|fdt_addr_r|ramdisk_addr_r)=(?:0x)?([0-9a-fA-F]+)(?=\0)")
_NAMES: Final[dict[str, Address]] = {
    "kernel_addr_r": "kernel_addr_r",
    "fdt_addr_r": "fdt_addr_r",
    "ramdisk_addr_r": "ramdisk_addr_r",
}
_LOADED: Final[dict[Address, str]] = {
    "kernel_addr_r": "the kernel",
    "fdt_addr_r": "the device tree",
    "ramdisk_addr_r": "the initramfs",
}
_LEGACY_MAGIC: Final = LEGACY_MAGIC.to_bytes(4)


def addresses_in(files: Iterable[bytes]) -> dict[Address, int]:
    """The addresses in the environment that a U-Boot is built with, from its files."""
    return {_NAMES[match[1].decode()]: int(match[2], 16) for file in files for match in _DEFAULT.finditer(file)}


def collision(addresses: Mapping[Address, int], *, kernel: bytes, initrd: int, device_tree: int) -> str | None:
    """The first two of them that do not fit beside each other in memory, with their sizes; None if all fit.

    A legacy image of a kernel is copied once more, to the address in its header, before the others are moved away. The
    kernel of a 64-bit ARM is moved to the next 2 MiB, and needs more room than its file.
    """
    sizes: dict[Address, int] = {
        "kernel_addr_r": len(kernel),
        "fdt_addr_r": device_tree,
        "ramdisk_addr_r": initrd,
    }
    placed = [(addresses[name], sizes[name], _LOADED[name], name) for name in addresses if sizes[name]]
    if kernel.startswith(_LEGACY_MAGIC):
        length, load = struct.unpack_from(">2I", kernel, 12)
        # Onto its own file it may be copied.
        others = [each for each in placed if each[3] != "kernel_addr_r"]
        moved = (load, length, "the unpacked kernel", "load address in its header")
        return _first_overlap(placed) or _first_overlap([*others, moved])
    if arm64image.is_image(kernel) and "kernel_addr_r" in addresses:
        others = [each for each in placed if each[3] != "kernel_addr_r"]
        if run := arm64image.placed(kernel, addresses["kernel_addr_r"]):
            return _first_overlap(placed) or _first_overlap([*others, (*run, "the kernel", "moved to the next 2 MiB")])
    return _first_overlap(placed)


def _first_overlap(placed: Iterable[tuple[int, int, str, str]]) -> str | None:
    ordered = sorted(placed)
    for (start, size, name, address), (after, _, other, other_address) in pairwise(ordered):
        if start + size > after:
            return (
                f"{name} has {size / MIB:.1f} MiB, but in the board's memory there are {(after - start) / MIB:.1f} MiB "
                f"between it ({address} = 0x{start:x}) and {other} ({other_address} = 0x{after:x})"
            )
    return None
