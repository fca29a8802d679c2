"""What all commands share: where output goes, and how it is asked for as JSON."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated

import typer
from rich.text import Text

from fsjoule.host.interrupts import SIGNALS
from fsjoule.host.terminal import PlainConsole

out = PlainConsole()
err = PlainConsole(stderr=True)

All = Annotated[bool, typer.Option("--all", help="Show all figures, not just the ten that matter most.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def progress(line: str) -> None:
    """Say what is going on, beside the output."""
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def print_json(document: object) -> None:
    """Print a JSON document."""
    print(json.dumps(document, indent=2, default=str))  # noqa: T201 - rich would wrap it


def labelled(label: str, style: str, text: str) -> Text:
    """A line of output behind a word in colour: a note, a failure. Markup would not do: see `PlainConsole`."""
    return Text.assemble((label, style), f"  {text}")


class Ending:
    """Whether the user wants an end. A signal's handler may set it at any moment: unlike an Event it has no lock."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def set(self) -> None:
        """End whoever waits, now and later."""
        with suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def wait(self, timeout_s: float) -> bool:
        """Whether the end is wanted, at once or within this time."""
        return bool(select.select([self._reader], [], [], timeout_s)[0])

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def ending() -> Generator[Ending]:
    """Take Ctrl-C, SIGTERM and SIGHUP as the wish to end a body that goes on until then.

    Another Ctrl-C ends it at once. One that is ignored, as Ctrl-C is in a shell's background job, stays so.
    """
    ended = Ending()

    def end(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and ended.wait(0.0):
            raise KeyboardInterrupt
        ended.set()

    heard = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, end) for each in heard}
    try:
        yield ended
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        ended.close()
