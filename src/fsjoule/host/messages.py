"""What fsjoule tells while it works: records of the logger `fsjoule`, which whoever runs it shows line by line.

A module has `_log = logging.getLogger(__name__)`. `info` is a line that every user sees, a warning begins with
`warning: `, and `debug` is for whoever asks for it. Nothing is shown, and no level is set, outside `lines_to`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from fsjoule.host.plaintext import plain

_LOGGER: Final = logging.getLogger("fsjoule")
_SILENT: Final = ContextVar("_SILENT", default=False)


class _Lines(logging.Handler):
    """Passes each record on as a line, with nothing in it that a terminal would obey.

    It takes no lock: a signal may interrupt any line, and would leave the lock to nobody. What `show` raises reaches
    whoever logs: a reader that is gone ends a command.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def handle(self, record: logging.LogRecord) -> bool:
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        if _SILENT.get():
            return
        is_warning = record.levelno >= logging.WARNING
        self._show(plain(f"{'warning: ' if is_warning else ''}{record.getMessage()}"))
        # The handlers of another suite's pytest get what they would get without a bench: no step of ours.
        for other in logging.root.handlers if is_warning else ():
            if record.levelno >= other.level:
                other.handle(record)


@contextmanager
def lines_to(show: Callable[[str], None]) -> Generator[None]:
    """Give `show` each line of the body, instead of whoever shows them around it."""
    before = _LOGGER.handlers[:], _LOGGER.level, _LOGGER.propagate
    _LOGGER.handlers[:] = [_Lines(show)]
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.handlers[:], level, _LOGGER.propagate = before
        _LOGGER.setLevel(level)


@contextmanager
def silent(is_silent: bool = True) -> Generator[None]:
    """Show nothing of what the body does in this thread; with False, show it again within a silent body."""
    token = _SILENT.set(is_silent)
    try:
        yield
    finally:
        _SILENT.reset(token)
