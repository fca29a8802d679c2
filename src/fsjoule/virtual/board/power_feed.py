"""The thread that sends the board's power to the meter, a thousand times per second while QEMU runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from fsjoule.host.realtime import prefer_this_thread
from fsjoule.virtual.board.feed import FeedWriter
from fsjoule.virtual.board.power_model import PowerCoefficients, PowerModel
from fsjoule.virtual.board.qemu_activity import ActivityReader

_PERIOD_NS: Final = 1_000_000
# A power that stays the same needs fewer records. The meter's samples come so much later.
_STEADY_S: Final = 0.01
# `watts` is smoothed over about this time.
_DISPLAY_NS: Final = 200_000_000
_STOP_TIMEOUT_S: Final = 5.0


class PowerFeed:
    """Feeds the meter from construction to `close`; the board starts switched off."""

    def __init__(self, path: Path, coefficients: PowerCoefficients) -> None:
        self._feed = FeedWriter(path)
        self._coefficients = coefficients
        self._changed = threading.Condition()
        self._volts = 0.0
        self._steady_w = 0.0
        self._reader: ActivityReader | None = None
        self._model = PowerModel(coefficients)
        self._stopping = False
        self._last_ns = time.monotonic_ns()
        self.watts = 0.0
        self._thread = threading.Thread(target=self._run, name="power feed", daemon=True)
        self._thread.start()

    @property
    def records(self) -> int:
        return self._feed.head

    @property
    def volts(self) -> float:
        return self._volts

    def switch_off(self) -> None:
        """Cut the supply: 0 V, 0 A."""
        self._set(0.0, 0.0, None)

    def halted(self) -> None:
        """Supply without current: the board has switched itself off."""
        self._set(self._coefficients.volts, 0.0, None)

    def idle(self) -> None:
        """Supply without a running CPU: QEMU is starting, or there is nothing to boot."""
        self._set(self._coefficients.volts, self._coefficients.idle_w, None)

    def follow(self, reader: ActivityReader | None) -> None:
        """Follow a running QEMU. This state's end closes the reader. Raises OSError if QEMU is gone already."""
        self._set(self._coefficients.volts, self._coefficients.idle_w, reader)

    def close(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(_STOP_TIMEOUT_S)
        self._set(0.0, 0.0, None)
        self._feed.close()

    def _set(self, volts: float, steady_w: float, reader: ActivityReader | None) -> None:
        model = PowerModel(self._coefficients, reader.read()) if reader is not None else self._model
        with self._changed:
            self._append()  # what was until now
            previous, self._reader = self._reader, reader
            self._volts, self._steady_w, self._model = volts, steady_w, model
            self._changed.notify()
        if previous is not None:
            previous.close()

    def _run(self) -> None:
        prefer_this_thread()
        next_ns = time.monotonic_ns()
        while not self._stopping:
            with self._changed:
                self._append()
                if self._reader is None and not self._stopping:
                    self._changed.wait(_STEADY_S)
                    next_ns = time.monotonic_ns()
                    continue
            next_ns += _PERIOD_NS
            if (left_ns := next_ns - time.monotonic_ns()) > 0:
                time.sleep(left_ns * 1e-9)
            else:
                next_ns -= left_ns

    def _append(self) -> None:
        """Add a record from the last one until now. The caller holds the lock."""
        now_ns = time.monotonic_ns()
        interval_ns = now_ns - self._last_ns
        if interval_ns <= 0:
            return
        volts, watts = self._volts, self._power(interval_ns)
        self._feed.append(now_ns, volts, watts / volts if volts else 0.0)
        self.watts += (watts - self.watts) * min(1.0, interval_ns / _DISPLAY_NS)
        self._last_ns = now_ns

    def _power(self, interval_ns: int) -> float:
        if self._reader is None:
            return self._steady_w
        try:
            return self._model.watts(self._reader.read(), interval_ns)
        except (OSError, ValueError):
            # QEMU has ended, but the board has not noticed yet.
            return self._steady_w
