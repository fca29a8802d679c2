"""Waits for what others do."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_S = 0.05


def wait_for(done: Callable[[], bool], told: str | Callable[[], object] = "", limit_s: float = 120.0) -> None:
    """Return when it is done; if it is not in time, fail with what is `told` of it."""
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline, told() if callable(told) else told
        time.sleep(_LOOK_S)
