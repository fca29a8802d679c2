"""What all commands share: where output goes, and how it is asked for as JSON."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def progress(line: str) -> None:
    """Say what is going on, beside the output."""
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def print_json(document: object) -> None:
    """Print a JSON document."""
    print(json.dumps(document, indent=2, default=str))  # noqa: T201 - rich would wrap it


@contextmanager
def ending() -> Generator[threading.Event]:
    """Set an event on Ctrl-C and SIGTERM, for a body that goes on until then; a second Ctrl-C ends it at once."""
    ended = threading.Event()

    def end(number: int, _frame: FrameType | None) -> None:
        if ended.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        ended.set()

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
