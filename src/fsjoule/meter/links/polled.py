"""An instrument that a thread asks again and again, as a meter that the host marks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from fsjoule.errors import MeterError
from fsjoule.meter.links.recording import RecordingMeter
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace

Ask = Callable[[], Callable[[], None]]

_PATIENCE_S: Final = 2.0


class PolledMeter(RecordingMeter[PolledTrace]):
    """ports.Meter of one instrument, for a `with` statement. The clock of its traces is the host's monotonic one.

    `begin` is called at `arm`, and may refuse. It makes a new trace, and a function that asks the instrument; what that
    returns adds the reading to the trace. `period_s` is the pause between two questions; `name` is for messages. The
    errors of both are MeterError.
    """

    def __init__(
        self, info: PlainInfo, name: str, begin: Callable[[], tuple[PolledTrace, Ask]], period_s: float
    ) -> None:
        super().__init__(_PATIENCE_S, f"{name} was not read for {_PATIENCE_S:g} s")
        self._info = info
        self._begin = begin
        self._period_s = period_s
        self._ask: Ask | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fsjoule-polled-meter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join(timeout=_PATIENCE_S)

    def arm(self) -> None:
        """Start recording. Raises MeterError."""
        trace, ask = self._begin()
        with self._lock:
            self._trace, self._ask = trace, ask
        self._wait(lambda: trace.end_us > 0)

    def mark_now(self, text: str) -> Callable[[], None]:
        """Mark this moment; nothing need be waited for."""
        time_us = time.monotonic_ns() // 1000
        with self._lock:
            if self._trace is not None:
                self._trace.mark(Mark(time_us, text, MarkSource.HOST))
        return lambda: None

    def _wait_for_now(self, trace: PolledTrace) -> None:
        until_us = time.monotonic_ns() // 1000 + round(self._info.tick_us)
        self._wait(lambda: trace.end_us >= until_us)

    def _rest(self, trace: PolledTrace) -> PlainTrace:
        with self._lock:
            return trace.take()

    def _run(self) -> None:
        while not self._closing.wait(self._period_s):
            with self._lock:
                ask = None if self._trace is None else self._ask
            if ask is None:
                continue
            try:
                add = ask()
            except MeterError as error:
                with self._lock:
                    self._trouble = error
                return
            with self._lock:
                add()
