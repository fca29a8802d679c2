"""The time that is left of a run, learned from its own measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from fsjoule.model import Planned
from fsjoule.suites.estimate import BoardRates, boots_of, seconds_of

# Fewer measurements say little: the first one also boots the board, and may write the card.
_ENOUGH: Final = 3
_MINUTE_S: Final = 60.0
_LONG_MINUTES: Final = 120


@dataclass
class Pace:
    """What entries and boots took in this run, and so what the entries that are left will take.

    An entry whose like (same workload and filesystem, else same workload) was measured takes as long as that. Any other
    one takes what `seconds_of` guesses, corrected by how far its guesses were off here. `may_end_early`: not all
    entries need be measured.
    """

    entries: Sequence[Planned]
    may_end_early: bool = False
    _done: int = 0
    _noted: int = 0
    _like: dict[tuple[object, ...], list[float]] = field(default_factory=dict[tuple[object, ...], list[float]])
    _took_s: float = 0.0
    _guessed_s: float = 0.0
    _boots_s: float = 0.0

    def note(self, number: int, seconds: float, booting_s: float) -> None:
        """Entry `number` was stored, `seconds` after the one before; `booting_s` of them were boots of the board."""
        found = next((i for i, entry in enumerate(self.entries) if entry.number == number), None)
        if found is None:
            return
        entry, working_s = self.entries[found], max(0.0, seconds - booting_s)
        self._done, self._noted = found + 1, self._noted + 1
        for key in ((entry.workload, entry.storage), (entry.workload, entry.storage, entry.filesystem)):
            self._like.setdefault(key, []).append(working_s)
        self._took_s += working_s
        self._guessed_s += seconds_of(entry, BoardRates())
        self._boots_s += booting_s

    @property
    def left_s(self) -> float | None:
        """The seconds that the rest takes, about; None until there is enough to learn from."""
        if self._noted < _ENOUGH:
            return None
        boots = boots_of(self.entries[: self._done])
        boot_s = self._boots_s / boots if boots else 0.0
        more_boots = boots_of(self.entries) - boots
        return more_boots * boot_s + sum(map(self._seconds, self.entries[self._done :]))

    @property
    def text(self) -> str:
        """`about 14 min left`, or nothing."""
        return "" if self._done == len(self.entries) else left_text(self.left_s, may_end_early=self.may_end_early)

    def _seconds(self, entry: Planned) -> float:
        on = (entry.workload, entry.storage)
        if known := self._like.get((*on, entry.filesystem)) or self._like.get(on):
            return fmean(known)
        if not self._guessed_s:
            return self._took_s / self._noted
        return seconds_of(entry, BoardRates()) * self._took_s / self._guessed_s


def left_text(left_s: float | None, *, may_end_early: bool) -> str:
    """`about 14 min left`, or nothing if it is not known."""
    if left_s is None:
        return ""
    minutes = math.ceil(left_s / _MINUTE_S)
    length = f"{minutes} min" if minutes < _LONG_MINUTES else f"{left_s / _MINUTE_S / 60:.1f} h"
    return f"about {length} left{' at most' if may_end_early else ''}"
