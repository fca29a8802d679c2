"""Several boards of one kind for one bisection: it boots on one until its lab fails, and goes on with the next one.

Each has a level of its own in the statistics. A board is a function that opens it, so a pool can hand out its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fsjoule.errors import LabError, StorageError
from fsjoule.model.bisection import KernelBoot
from fsjoule.ports import KernelBoots, LikelyBoots

Opening = Callable[[], AbstractContextManager[KernelBoots]]


@dataclass
class Boards:
    """ports.KernelBoots on the first of `boards` that works; a board that was given up is not asked again."""

    boards: Sequence[Opening]
    say: Callable[[str], None]
    _number: int = field(default=0, init=False)
    _present: KernelBoots | None = field(default=None, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def measure(self, kernel: Path, seed: int, *, profiled: bool = False) -> KernelBoot:
        """See ports.KernelBoots. Raises the LabError of the last board; a full disk is no board's fault."""
        while True:
            if self._present is None:
                self._present = self._open.enter_context(self.boards[self._number]())
            try:
                return self._present.measure(kernel, seed, profiled=profiled)
            except StorageError:
                raise
            except LabError as error:
                if not self.give_up(error.what.splitlines()[0]):
                    raise

    def expect(self, likely: LikelyBoots) -> None:
        """See ports.KernelBoots: no board is free."""

    def give_up(self, why: str) -> bool:
        """See ports.KernelBoots."""
        if self._number + 1 >= len(self.boards):
            return False
        self.say(f"board {self._number + 1} of {len(self.boards)} is out: {why}; going on with the next one")
        self._present = None
        self._open.close()
        self._number += 1
        return True
