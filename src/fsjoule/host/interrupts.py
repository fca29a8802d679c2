"""Signals that end a run: Ctrl-C, SIGTERM (a cancelled job), SIGHUP (a terminal that closes).

However many come, and whenever, the board is to be off, the place free and the run folder final. So a signal raises
`Interrupted` only in code that says that it may be left anywhere (`interruptible`), and only once: whatever it unwinds
is not disturbed again. Everywhere else, clean-up above all, a signal is noted, and raised where the next such code
begins. An exception that somebody swallowed on its way is raised there again, too, or by the next signal after a while
if nothing unwinds for it any more.

A signal that was ignored when the program started, as Ctrl-C is in a shell's background job, stays ignored.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HELD_OFF: Final = "ending: board off, place free; a moment"
_AGAIN_S: Final = 5.0
_SHELLS_OFFSET: Final = 128
CTRL_C: Final = "Ctrl-C"
_NAMES: Final = {signal.SIGINT: CTRL_C, signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


class Interrupted(KeyboardInterrupt):
    """A signal wants the run to end."""

    def __init__(self, number: int) -> None:
        super().__init__(_NAMES[signal.Signals(number)])
        self.number = number


@dataclass
class _State:
    """Of the process, whose main thread alone gets signals. `shields` counts what must not be left in between."""

    handled: bool = False
    armed: bool = False
    shields: int = 0
    number: int | None = None
    raised_s: float | None = None
    told: bool = False
    former: dict[int, Any] = field(default_factory=dict[int, Any])


_state = _State()


def install() -> None:
    """Handle the signals from now on, until `restore`. For the main thread."""
    _state.handled, _state.armed, _state.shields = True, False, 0
    _state.number, _state.raised_s, _state.told = None, None, False
    for each in SIGNALS:
        # Ignored, or handled by something that is not Python's and cannot be put back.
        if signal.getsignal(each) not in (signal.SIG_IGN, None):
            _state.former[each] = signal.signal(each, _handle)


def restore() -> None:
    """Give the signals back to whoever had them. What has come is still known.

    After one that has come, the program is at its end: another one must not change with what it ends.
    """
    for each, handler in _state.former.items():
        signal.signal(each, handler if _state.number is None else signal.SIG_IGN)
    _state.former.clear()
    _state.handled = False


@contextmanager
def handled() -> Generator[None]:
    """Handle the signals in the body; does nothing within another one's.

    Raises Interrupted at its end if a signal came that nothing has raised yet.
    """
    if _state.handled or threading.current_thread() is not threading.main_thread():
        yield
        return
    install()
    try:
        yield
    finally:
        restore()
    check()


def pending() -> str | None:
    """The signal that wants the run to end, by its name, if one has come."""
    return None if _state.number is None else _NAMES[signal.Signals(_state.number)]


def reason() -> str | None:
    """Why a run ends before its time, if a signal wants it to."""
    name = pending()
    return name and ("interrupted" if name == CTRL_C else f"interrupted by {name}")


def exit_code() -> int | None:
    """What a shell says of a program that the signal ended, if one has come: 130 after Ctrl-C."""
    return None if _state.number is None else _SHELLS_OFFSET + _state.number


def check() -> None:
    """Raise Interrupted if a signal has come. For code that is called where signals are only noted."""
    if _state.number is not None and not _state.shields:
        _raise()


class interruptible:  # noqa: N801 - used as a function is
    """In the body a signal raises Interrupted at once; also one that came before. A shield around it is stronger."""

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


class shielded:  # noqa: N801 - used as a function is
    """In the body signals are only noted, and raised at its end. For what must be done as a whole, and is short.

    Without `install` it shields from Ctrl-C, the only one that raises then.
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


def tell(say: Callable[[str], None]) -> None:
    """Say once that the end takes a moment, if a signal wants it. For the beginning of a clean-up."""
    name = pending()
    if name is not None and not _state.told:
        _state.told = True
        say(f"{name}: {HELD_OFF}")


# --------------------------------------------------------------------------------------------------------------------


def _ours() -> bool:
    return _state.handled and threading.current_thread() is threading.main_thread()


def _raise() -> None:
    assert _state.number is not None
    _state.raised_s = time.monotonic()
    raise Interrupted(_state.number) from None


def _handle(number: int, frame: FrameType | None) -> None:
    """Note a signal, and raise it where that is allowed."""
    if _state.number is None:
        _state.number = number
    if not _state.armed or _state.shields:
        return
    # One that was swallowed (Python can do nothing else in a destructor) must not make all later ones nothing.
    if _state.raised_s is None or (time.monotonic() - _state.raised_s > _AGAIN_S and not _unwinding()):
        _leave(frame)
        _raise()


def _unwinding() -> bool:
    """Whether clean-up after a signal is under way: what is being handled is its exception, or came of it."""
    error = sys.exception()
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


def _leave(frame: FrameType | None) -> None:
    """Do what a region's way in or out would have done, if an exception is about to end that way halfway."""
    if frame is not None and frame.f_code is _ours.__code__:
        frame = frame.f_back
    if frame is not None and frame.f_code in (interruptible.__enter__.__code__, interruptible.__exit__.__code__):
        region: interruptible = frame.f_locals["self"]
        _state.armed = region.before
