"""Requests to the host's scheduler for short delays; a refusal is accepted."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Final

_NICE: Final = -10


def prefer_this_thread() -> None:
    """Give the calling thread SCHED_FIFO, or else a better nice value, if allowed. Its programs do not inherit it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
