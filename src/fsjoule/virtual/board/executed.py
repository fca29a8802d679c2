"""Reads the probe's profile of a window: executed instructions, as in probe/guest_profile.c."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from fsjoule.errors import LabError
from fsjoule.model import Profile

# Magic, records, time at the start mark and at the stop mark, busy time in between, time of an instruction.
_HEADER: Final = struct.Struct("<8sQqqqq")
_MAGIC: Final = b"FSJPROF\0"
_RECORD: Final = np.dtype([("address", "<u8"), ("page", "<u8"), ("executed", "<u8")])
# The emulated processor's vector for an instruction without its memory, which is repeated and so counted twice.
_DATA_ABORT: Final = 0xFFFF0010


def read_profile(content: bytes) -> Profile:
    """The profile of a window. Raises LabError for invalid content."""
    try:
        magic, records, start_ns, stop_ns, busy_ns, instruction_ns = _HEADER.unpack_from(content)
        rows = np.frombuffer(content, _RECORD, records, _HEADER.size)
    except (struct.error, ValueError) as error:
        raise LabError(f"the probe's profile cannot be read: {error}") from error
    if magic != _MAGIC or len(content) != _HEADER.size + rows.nbytes:
        raise LabError("the probe's answer is not a profile")
    rows = np.sort(rows, order=["address", "page"])
    return Profile(
        addresses=rows["address"].copy(),
        pages=rows["page"].copy(),
        executed=rows["executed"].copy(),
        window_ns=stop_ns - start_ns,
        busy_ns=busy_ns,
        instruction_ns=instruction_ns,
        repeated=int(rows["executed"][rows["address"] == _DATA_ABORT].sum()),
    )
