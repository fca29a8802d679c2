"""What a board executed in a window, to the instruction, and what its addresses are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Instructions that were executed between a measurement's marks, by address; one row an instruction.

    `pages` tell programs apart that use the same addresses: a hash of the page that the instruction is in, 0 for the
    kernel. `busy_ns` is the time in which instructions were executed, by the processor's own count of them, each
    `instruction_ns`. An instruction that could not reach its memory is counted, and again when it is repeated;
    `repeated` says how often that was.
    """

    addresses: npt.NDArray[np.uint64]
    pages: npt.NDArray[np.uint64]
    executed: npt.NDArray[np.uint64]
    window_ns: int
    busy_ns: int
    instruction_ns: int
    repeated: int = 0

    @property
    def sum_ns(self) -> int:
        """The time of all rows together: the busy time, and that of repeated instructions."""
        return int(self.executed.sum()) * self.instruction_ns


@dataclass(frozen=True, slots=True)
class Symbols:
    """Where the functions of a boot's kernel begin, ascending, and the module of each; empty for the kernel itself."""

    addresses: npt.NDArray[np.uint64]
    names: Sequence[str]
    modules: Sequence[str]
