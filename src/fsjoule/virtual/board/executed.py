"""What the probe writes of a window in which it counted instructions, as probe/guest_profile.c has it."""

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
# Where a processor of the emulated board goes on when an instruction could not reach its memory: that one has been
# counted, and is counted again when it is repeated.
_DATA_ABORT: Final = 0xFFFF0010


def read_profile(content: bytes) -> Profile:
    """The profile of a window. Raises LabError if it is none."""
    try:
        magic, records, start_ns, stop_ns, busy_ns, instruction_ns = _HEADER.unpack_from(content)
        rows = np.frombuffer(content, _RECORD, records, _HEADER.size)
    except (struct.error, ValueError) as error:
        raise LabError(f"the probe's profile cannot be read: {error}") from error
    if magic != _MAGIC or len(content) != _HEADER.size + rows.nbytes:
        raise LabError("what the probe gave is no profile")
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
