"""labgrid's own step events, kept for whoever reads the results: what the lab did, when, for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from labgrid.step import steps

from fsjoule.model import LabStep

_LONGEST: Final = 200
# What a run of many hours without a measurement may keep in memory.
_MOST: Final = 5000


class _Recorder:
    """Steps in the order in which they began. Reads and writes of a console are left out: its log has them."""

    def __init__(self) -> None:
        self._begun: list[tuple[Any, int]] = []

    def notify(self, event: Any) -> None:  # noqa: ANN401 - labgrid's
        if event.data.get("state") == "start" and event.step.tag is None and len(self._begun) < _MOST:
            self._begun.append((event.step, round(time.time() * 1000)))

    def take(self) -> tuple[LabStep, ...]:
        taken, self._begun = self._begun, []
        return tuple(_kept(step, started_ms) for step, started_ms in taken)


@contextmanager
def recorded_steps() -> Generator[Callable[[], tuple[LabStep, ...]]]:
    """Listen to labgrid; gives a function that takes what it has done since the last call."""
    recorder = _Recorder()
    steps.subscribe(recorder.notify)
    try:
        yield recorder.take
    finally:
        steps.unsubscribe(recorder.notify)


def _kept(step: Any, started_ms: int) -> LabStep:  # noqa: ANN401 - labgrid's
    return LabStep(
        title=str(step.title),
        source=type(step.source).__name__ if step.source is not None else "",
        level=int(step.level),
        started_utc_ms=started_ms,
        duration_ms=round(step.duration * 1000),
        args={str(name): _text(value) for name, value in (step.args or {}).items()},
        error=_text(step.exception) if step.exception is not None else "",
    )


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
