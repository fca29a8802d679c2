"""Kinds of storage: what filesystems are made on."""

from __future__ import annotations

import re
from enum import StrEnum


class Medium(StrEnum):
    """A kind of storage. A filesystem is made for one of them."""

    BLOCK = "block device"
    MTD = "MTD device"  # raw flash memory, which is erased before it is written


def medium_of(device: str) -> Medium:
    """The kind of a storage device by the kernel's name for it: `sda`, `mmcblk1p3`, `mtd0`."""
    return Medium.MTD if re.fullmatch(r"mtd\d+", device) else Medium.BLOCK
