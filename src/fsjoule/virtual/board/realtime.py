"""Asking the host's scheduler for promptness, and going on without."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Final

_NICE: Final = -10


def prefer_this_thread() -> None:
    """SCHED_FIFO for the calling thread, or a better nice value, or neither; programs it starts get none of it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
