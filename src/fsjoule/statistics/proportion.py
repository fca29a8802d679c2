"""How often something happened, and how often it may happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Proportion:
    """It happened `count` times in `n` trials, at least one."""

    count: int
    n: int

    @property
    def share(self) -> float:
        return self.count / self.n

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """The Clopper-Pearson interval of the share: never too narrow, also where nothing happened.

        Clopper, Pearson: The use of confidence or fiducial limits illustrated in the case of the binomial, 1934.
        """
        # Importing it takes a second, and only tables of outcomes need it.
        from scipy.special import betaincinv  # noqa: PLC0415

        tail = (1 - confidence) / 2
        low = float(betaincinv(self.count, self.n - self.count + 1, tail)) if self.count else 0.0
        high = float(betaincinv(self.count + 1, self.n - self.count, 1 - tail)) if self.count < self.n else 1.0
        return low, high
