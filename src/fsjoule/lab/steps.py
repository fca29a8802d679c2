"""Records labgrid's own step events for the results: actions of the lab with their times."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from labgrid.protocol import ConsoleProtocol
from labgrid.step import steps

from fsjoule.model import LabStep
from fsjoule.ports import Command

_LONGEST: Final = 1000
# Limit for a run of many hours without a measurement.
_MOST: Final = 5000


class _Recorder:
    """Steps in the order in which they began, without consoles, which have their own log."""

    def __init__(self) -> None:
        self._begun: list[tuple[Any, int]] = []

    def notify(self, event: Any) -> None:  # noqa: ANN401 - labgrid's
        step = event.step
        shown = step.tag is None and not isinstance(step.source, ConsoleProtocol)
        if event.data.get("state") == "start" and shown and len(self._begun) < _MOST:
            self._begun.append((step, round(time.time() * 1000)))

    def take(self) -> tuple[LabStep, ...]:
        taken, self._begun = self._begun, []
        return tuple(_kept(step, started_ms) for step, started_ms in taken)


@contextmanager
def recorded_steps() -> Generator[Callable[[], tuple[LabStep, ...]]]:
    """Record labgrid's steps. Gives a function that returns the steps since its last call."""
    recorder = _Recorder()
    steps.subscribe(recorder.notify)
    try:
        yield recorder.take
    finally:
        steps.unsubscribe(recorder.notify)


def _kept(step: Any, started_ms: int) -> LabStep:  # noqa: ANN401 - labgrid's
    return LabStep(
        title=str(step.title).strip("_"),
        source=type(step.source).__name__ if step.source is not None else "",
        level=int(step.level),
        started_utc_ms=started_ms,
        duration_ms=round(step.duration * 1000),
        args={str(name): _text(value) for name, value in (step.args or {}).items()},
        error=_text(step.exception) if step.exception is not None else "",
    )


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)) and all(isinstance(each, Command) for each in value):
        value = " && ".join(shlex.join(each.argv) for each in value)
    text = shlex.join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
