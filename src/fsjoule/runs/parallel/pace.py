"""The time that is left of a run on several boards."""

from __future__ import annotations

from dataclasses import dataclass

from fsjoule.runs.parallel.boards import Boards
from fsjoule.suites import left_text


@dataclass(frozen=True, slots=True)
class BoardsPace:
    """As `suites.Pace`, from what whole boots took. Boards are ahead of the measurements that have been told."""

    boards: Boards
    may_end_early: bool

    def note(self, _number: int, _seconds: float, _booting_s: float) -> None:
        """Nothing is learned from when a measurement is told."""

    @property
    def text(self) -> str:
        """`about 14 min left`, or nothing."""
        return left_text(self.boards.left_s or None, may_end_early=self.may_end_early)
