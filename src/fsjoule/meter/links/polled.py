"""An instrument that a thread asks again and again, as a meter that the host marks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace

Ask = Callable[[], Callable[[], None]]

_PATIENCE_S: Final = 2.0
_LOOK_S: Final = 0.005


class PolledMeter:
    """ports.Meter of one instrument, for a `with` statement. The clock of its traces is the host's monotonic one.

    `begin` is called at `arm`, and may refuse. It makes a new trace, and a function that asks the instrument; what that
    returns adds the reading to the trace. `period_s` is the pause between two questions; `name` is for messages. The
    errors of both are MeterError.
    """

    def __init__(
        self, info: PlainInfo, name: str, begin: Callable[[], tuple[PolledTrace, Ask]], period_s: float
    ) -> None:
        self._info = info
        self._name = name
        self._begin = begin
        self._period_s = period_s
        self._lock = threading.Lock()
        self._trace: PolledTrace | None = None
        self._ask: Ask | None = None
        self._trouble: MeterError | None = None
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

    def info(self) -> PlainInfo:
        return self._info

    def arm(self) -> None:
        """Start recording. Raises MeterError."""
        trace, ask = self._begin()
        with self._lock:
            self._trace, self._ask = trace, ask
        self._wait(1)
        self._raise_trouble()

    def disarm(self) -> PlainTrace:
        """Stop recording. Returns everything since `arm` that was not taken, up to now."""
        self._wait_for_now()
        self._raise_trouble()
        trace = self.take()
        with self._lock:
            self._trace = self._ask = None
        return trace

    def take(self, *, whole: bool = False) -> PlainTrace:
        """The ticks since `arm` or the last call, with their marks; `whole` waits for those up to now.

        Raises MeterError if it was not armed, or if the instrument does not answer any more and all ticks before that
        are taken.
        """
        if whole:
            self._wait_for_now()
        with self._lock:
            if self._trace is None:
                raise MeterError("the meter was not armed", hint="call arm() before disarm()")
            taken = self._trace.take()
        if not len(taken.ticks):
            self._raise_trouble()
        return taken

    def mark_now(self, text: str) -> Callable[[], None]:
        """Mark this moment; nothing need be waited for."""
        time_us = time.monotonic_ns() // 1000
        with self._lock:
            if self._trace is not None:
                self._trace.mark(Mark(time_us, text, MarkSource.HOST))
        return lambda: None

    def _wait_for_now(self) -> None:
        self._wait(time.monotonic_ns() // 1000 + round(self._info.tick_us))

    def _wait(self, until_us: int) -> None:
        """Until there is a reading from then on, or trouble."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with self._lock:
                if self._trouble is not None or self._trace is None or self._trace.end_us >= until_us:
                    return
                if time.monotonic() > deadline:
                    self._trouble = MeterError(f"{self._name} was not read for {_PATIENCE_S:g} s", transient=True)
                    return
            time.sleep(_LOOK_S)

    def _raise_trouble(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    def _run(self) -> None:
        while not self._closing.wait(self._period_s):
            with self._lock:
                ask = self._ask
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
