"""The host's clock and load, and requests to its scheduler for short delays."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Final

_NICE: Final = -10


def today() -> date:
    """The day in UTC."""
    return datetime.now(UTC).date()


class HostClock:
    def now_s(self) -> float:
        return time.monotonic()

    def utc(self) -> str:
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def load(self) -> tuple[float, int]:
        return os.getloadavg()[0], len(os.sched_getaffinity(0))


def prefer_this_thread() -> None:
    """Give the calling thread SCHED_FIFO, or else a better nice value, if allowed. Its programs do not inherit it.

    A refusal is accepted.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
