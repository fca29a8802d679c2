"""What instruments have in common whose readings another thread puts into a trace while somebody waits for it."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from fsjoule.errors import MeterError
from fsjoule.model import PlainInfo, PlainTrace

_LOOK_S: Final = 0.005


class TakenTrace(Protocol):
    def take(self) -> PlainTrace:
        """What was not taken yet."""
        ...


T = TypeVar("T", bound=TakenTrace)


class RecordingMeter(ABC, Generic[T]):
    """An `InstrumentMeter` with a trace while it is armed. Whoever uses `_trace` or `_trouble` holds `_lock`.

    `_trouble` ends the recording: what was recorded before can still be taken. `patience_s` is how long a reading is
    waited for; `silent` and `hint` are the error then.
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
            self._wait_for_now(trace)
            return self._rest(trace)
        finally:
            with self._lock:
                self._trace = None

    def take(self, *, whole: bool = False) -> PlainTrace:
        """The ticks since `arm` or the last call, with their marks; `whole` waits for those up to now.

        Raises MeterError if it was not armed. If the instrument is gone, the call that finds nothing left raises it.
        """
        trace = self._armed()
        if whole and self._trouble is None:
            try:
                self._wait_for_now(trace)
            except MeterError as error:
                self._trouble = error
        with self._lock:
            taken = trace.take()
            if self._trouble is not None and not len(taken.ticks):
                raise self._trouble
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
