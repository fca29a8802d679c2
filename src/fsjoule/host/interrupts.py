"""Signals that end a run: Ctrl-C, SIGTERM (a cancelled job), SIGHUP (a terminal that closes).

After any number of signals at any time the board must be off, the place free and the run folder final. So a signal
raises `Interrupted` only in code that may be left anywhere (`interruptible`), and only once: nothing disturbs the
unwinding. All other code, above all clean-up, only notes the signal; the next interruptible code raises it. If other
code swallows the exception, it is raised again there, or by a later signal when nothing unwinds any more.

A signal that was ignored at the start of the program (Ctrl-C in a shell's background job) stays ignored.
"""

from __future__ import annotations

import logging
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

_log: Final = logging.getLogger(__name__)

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HELD_OFF: Final = "ending; please wait until the board is off and the place is free"
_AGAIN_S: Final = 5.0
_IMPORTED_S: Final = 0.1
_IMPORT: Final = "<frozen importlib._bootstrap>"
_SHELLS_OFFSET: Final = 128
CTRL_C: Final = "Ctrl-C"
_CANCEL: Final[ContextVar[Callable[[], None]]] = ContextVar("_CANCEL", default=lambda: None)
_NAMES: Final = {signal.SIGINT: CTRL_C, signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


class Interrupted(KeyboardInterrupt):
    def __init__(self, number: int) -> None:
        super().__init__(_NAMES[signal.Signals(number)])
        self.number = number


@dataclass
class _State:
    """State of the process, whose main thread alone gets signals. `shields` counts open `shielded` bodies."""

    handled: bool = False
    armed: bool = False
    shields: int = 0
    number: int | None = None
    raised_s: float | None = None
    told: bool = False
    former: dict[int, Any] = field(default_factory=dict[int, Any])


_state = _State()


def install() -> None:
    """Handle the signals from now on, until `restore`. Call it from the main thread."""
    _state.handled, _state.armed, _state.shields = True, False, 0
    _state.number, _state.raised_s, _state.told = None, None, False
    for each in SIGNALS:
        # Not ignored, and not handled outside Python, which could not be restored.
        if signal.getsignal(each) not in (signal.SIG_IGN, None):
            _state.former[each] = signal.signal(each, _handle)


def restore() -> None:
    """Give the signals back to their former handlers. A signal that has come is still known.

    After a signal the program is about to end: another one must not change its exit code.
    """
    for each, handler in _state.former.items():
        signal.signal(each, handler if _state.number is None else signal.SIG_IGN)
    _state.former.clear()
    _state.handled = False


@contextmanager
def handled() -> Generator[None]:
    """Handle the signals in the body; nested use does nothing. Raises Interrupted at its end if still due."""
    if _state.handled or threading.current_thread() is not threading.main_thread():
        yield
        return
    install()
    try:
        yield
    finally:
        restore()
    check()


@contextmanager
def heard(handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """While the body runs, the signals go to `handler`; ignored signals stay ignored."""
    former = {each: signal.signal(each, handler) for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for each, before in former.items():
            signal.signal(each, before)


def pending() -> str | None:
    return None if _state.number is None else _NAMES[signal.Signals(_state.number)]


def reason() -> str | None:
    name = pending()
    return name and ("interrupted" if name == CTRL_C else f"interrupted by {name}")


def exit_code() -> int | None:
    """A shell's exit code for a program ended by the signal, if one has come: 130 after Ctrl-C."""
    return None if _state.number is None else _SHELLS_OFFSET + _state.number


def check() -> None:
    """Raise Interrupted if a signal has come. For code in which signals are only noted."""
    if _state.number is not None and not _state.shields:
        _raise()


class interruptible:  # noqa: N801 - used like a function
    """In the body a signal raises Interrupted at once, even one that came before. An outer `shielded` prevents that."""

    def __init__(self) -> None:
        self.before = _state.armed

    def __enter__(self) -> None:
        if _ours() and not _state.shields:
            _state.armed = True
            if _state.number is not None:
                _state.armed = self.before
                _raise()

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if _ours():
            _state.armed = self.before


class shielded:  # noqa: N801 - used like a function
    """In the body signals are only noted, and raised at its end. For short work that must not be divided.

    Without `install` it shields from Ctrl-C, the only signal that raises then.
    """

    def __init__(self) -> None:
        self._alone = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if not _state.handled and not _state.shields and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _state.number = _state.raised_s = None
            signal.signal(signal.SIGINT, _handle)
            self._alone = True
        _state.shields += 1

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        _state.shields -= 1
        if self._alone:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if kind is None:
                check()
        elif kind is None and _state.armed and _state.raised_s is None:
            check()


def nobody_reads(file: int) -> bool:
    """Whether a pipe has lost its reader or a terminal has closed: whoever has started the program is gone."""
    poll = select.poll()
    poll.register(file, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def hang_up() -> None:
    """Do as after SIGHUP, even where it is ignored, as it is under nohup."""
    _handle(signal.SIGHUP, None)


def tell() -> None:
    """Say once that ending takes a moment, if a signal has come. Call it when clean-up begins."""
    name = pending()
    if name is not None and not _state.told:
        _state.told = True
        _log.info("%s: %s", name, HELD_OFF)


def cancel_with(check: Callable[[], None]) -> None:
    """Let long waits of this thread ask `check`, which raises to end them, every few seconds from now on."""
    _CANCEL.set(check)


def check_cancelled() -> None:
    """Raise if nobody wants what this thread waits for (`cancel_with`)."""
    _CANCEL.get()()


def _ours() -> bool:
    return _state.handled and threading.current_thread() is threading.main_thread()


def _raise() -> None:
    assert _state.number is not None
    _state.raised_s = time.monotonic()
    raise Interrupted(_state.number) from None


def _handle(number: int, frame: FrameType | None) -> None:
    if _state.number is None:
        _state.number = number
    if not _state.armed or _state.shields:
        return
    if _importing(frame):
        again = threading.Timer(_IMPORTED_S, signal.pthread_kill, (threading.main_thread().ident, number))
        again.daemon = True
        again.start()
        return
    # A signal that was swallowed (in a destructor Python must swallow it) must not disable later ones.
    if _state.raised_s is None or (time.monotonic() - _state.raised_s > _AGAIN_S and not _unwinding()):
        _leave(frame)
        _raise()


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: pydantic swallows what is raised meanwhile, and half a module is left."""
    while frame is not None and frame.f_code.co_filename != _IMPORT:
        frame = frame.f_back
    return frame is not None


def _unwinding() -> bool:
    """Whether clean-up after a signal is running: the handled exception is Interrupted or was caused by it."""
    error = sys.exception()
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


def _leave(frame: FrameType | None) -> None:
    """Finish a region's __enter__ or __exit__ if the exception is about to cut it short."""
    if frame is not None and frame.f_code is _ours.__code__:
        frame = frame.f_back
    if frame is not None and frame.f_code in (interruptible.__enter__.__code__, interruptible.__exit__.__code__):
        region: interruptible = frame.f_locals["self"]
        _state.armed = region.before
