"""The kernel's messages about failing cards and filesystems, which make a measurement's figures doubtful."""

from __future__ import annotations

import re
from typing import Final

from fsjoule.filesystems import FILESYSTEMS

_OF_DEVICES: Final = (
    r"I/O error|mmc(?:blk)?\d.*(?:error|timeout|timed out)|Remounting filesystem read-only|blk_update_request"
)
_OF_FILESYSTEMS: Final = dict.fromkeys(row.errors for row in FILESYSTEMS.values() if row.errors)
_ERROR: Final = re.compile("|".join((_OF_DEVICES, *_OF_FILESYSTEMS)), re.IGNORECASE)
_SHOWN: Final = 3


def kernel_complaints(kernel_log: str) -> list[str]:
    """The first I/O and filesystem errors in a measurement's kernel log."""
    found = [line.strip() for line in kernel_log.splitlines() if _ERROR.search(line)]
    return [f"the kernel reported: {line}" for line in found[:_SHOWN]]
