from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime


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
