"""Versions of programs and kernels as numbers that compare."""

from __future__ import annotations

import re


def parse_version(text: str) -> tuple[int, ...]:
    """The first dotted number in a text: `QEMU emulator version 7.2.22 (Debian ...)` -> (7, 2, 22)."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
