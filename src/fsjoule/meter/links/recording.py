"""What instruments have in common whose readings another thread puts into a trace while somebody waits for it."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, Protocol, Self, TypeVar

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace

Ask = Callable[[], Callable[[], None]]

_PATIENCE_S: Final = 2.0
_LOOK_S: Final = 0.005


class TakenTrace(Protocol):
    def take(self) -> PlainTrace:
        """What was not taken yet."""
        ...


T = TypeVar("T", bound=TakenTrace)


class RecordingMeter(ABC, Generic[T]):
    """An `InstrumentMeter` with a trace while it is armed. Whoever uses `_trace` or `_trouble` holds `_lock`.

    `_trouble` is the other thread's, and ends the recording: what was recorded before can still be taken. `patience_s`
    is how long a reading is waited for; `silent` and `hint` are the error then.
    """

    def __init__(self, patience_s: float, silent: str, hint: str | None = None) -> None:
        self._lock = threading.Lock()
        self._trace: T | None = None
        self._trouble: MeterError | None = None
        self._patience_s = patience_s
        self._silent, self._hint = silent, hint
        self._info: PlainInfo

    def info(self) -> PlainInfo:
        return self._info

    def disarm(self) -> PlainTrace:
        """Stop recording. Returns everything since `arm` that was not taken, up to now."""
        trace = self._armed()
        try:
            try:
                self._wait_for_now(trace)
            except MeterError:
                with suppress(MeterError):  # a silent instrument is to stop as well
                    self._rest(trace)
                raise
            return self._rest(trace)
        finally:
            with self._lock:
                self._trace = None

    def take(self, *, whole: bool = False) -> PlainTrace:
        """The ticks since `arm` or the last call, with their marks; `whole` waits for those up to now.

        Raises MeterError if it was not armed. If the instrument is gone, the call that finds nothing left raises it.
        So does each with `whole` while it is silent.
        """
        trace, silent = self._armed(), None
        if whole:
            try:
                self._wait_for_now(trace)
            except MeterError as error:
                silent = error
        with self._lock:
            taken = trace.take()
            trouble = self._trouble or silent
            if trouble is not None and not len(taken.ticks):
                raise trouble
            return taken

    @abstractmethod
    def _wait_for_now(self, trace: T) -> None:
        """Wait until the trace has everything up to now. Raises MeterError."""

    @abstractmethod
    def _rest(self, trace: T) -> PlainTrace:
        """Let the instrument stop, and take what is left. Raises MeterError."""

    def _armed(self) -> T:
        with self._lock:
            if self._trace is None:
                raise MeterError("the meter was not armed", hint="call arm() before disarm()")
            return self._trace

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Until it is so; it is called with the lock held. Raises MeterError."""
        deadline = time.monotonic() + self._patience_s
        while True:
            with self._lock:
                if self._trouble is not None:
                    raise self._trouble
                if condition():
                    return
            if time.monotonic() > deadline:
                raise MeterError(self._silent, transient=True, hint=self._hint)
            time.sleep(_LOOK_S)


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

    def __exit__(self, *error: object) -> None:
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
