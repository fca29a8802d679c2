"""Where the time of a run goes. Phases nest; time counts for the innermost phase."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fsjoule.ports import Clock


@dataclass
class Phases:
    """Seconds by phase. Time outside all phases is not counted."""

    clock: Clock
    spent_s: dict[str, float] = field(default_factory=dict[str, float])
    _open: list[str] = field(default_factory=list[str])
    _since_s: float = 0.0

    @contextmanager
    def __call__(self, name: str) -> Generator[None]:
        """Count the body's time for the phase `name`."""
        self._account()
        self._open.append(name)
        try:
            yield
        finally:
            self._account()
            self._open.pop()

    def add(self, name: str, seconds: float) -> None:
        """Count time that was measured elsewhere."""
        self.spent_s[name] = self.spent_s.get(name, 0.0) + seconds

    def _account(self) -> None:
        now_s = self.clock.now_s()
        if self._open:
            self.add(self._open[-1], now_s - self._since_s)
        self._since_s = now_s
