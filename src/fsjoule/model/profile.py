"""The instructions that a board executed in a window, and the names of their addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # most commands have no profile, and numpy takes a quarter of a second to import
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Instructions executed between a measurement's marks, by address: one row per instruction, all arrays (n,).

    `pages` tells programs with equal addresses apart: a hash of the instruction's page, 0 for the kernel. `busy_ns` is
    the time of executed instructions by the processor's own count, each `instruction_ns`. An instruction that could not
    reach its memory is counted again when it is repeated; `repeated` counts these.
    With `sampled` a row counts samples, each of which stands for `instruction_ns`; `programs` are the names of pages.
    """

    addresses: npt.NDArray[np.uint64]
    pages: npt.NDArray[np.uint64]
    executed: npt.NDArray[np.uint64]
    window_ns: int
    busy_ns: int
    instruction_ns: int
    repeated: int = 0
    sampled: bool = False
    programs: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def sum_ns(self) -> int:
        """The time of all rows: the busy time plus the time of repeated instructions."""
        return int(self.executed.sum()) * self.instruction_ns


@dataclass(frozen=True, slots=True)
class Symbols:
    """Functions of a boot's kernel: start addresses, ascending, and modules (empty for the kernel itself).

    `folders` are the modules' folders in the kernel's source, by module: `fs/btrfs`.
    """

    addresses: npt.NDArray[np.uint64]
    names: Sequence[str]
    modules: Sequence[str]
    folders: Mapping[str, str] = field(default_factory=dict[str, str])


# Why a measurement that was sampled is invalid: it is a profile, and nothing else.
SAMPLED: Final = "perf took samples, which slows the board down: its figures do not count"
