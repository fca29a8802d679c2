"""Standard output and error of a program: that they cannot be written is told once, and never as another failure.

Python would end with 1 or 120 for it, rich and typer with 1, and pytest with its exit code for a crash: each of these
is an answer or another cause here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TextIO, cast

from fsjoule.errors import StorageError

_HINT: Final = "make room on the disk that it goes to, or do not close the pipe that it goes into"


class GuardedOutput:
    """A text stream whose first failure calls `failed`; what is written after that is dropped.

    A whole descriptor is dropped: what waits in a buffer must not fail again when the interpreter ends.
    """

    def __init__(self, stream: TextIO, failed: Callable[[OSError], None] = lambda _error: None) -> None:
        self.stream = stream
        self._failed = failed
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write a text; returns its length."""
        if self.error is None:
            try:
                return self.stream.write(text)
            except OSError as error:
                self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        if self.error is None:
            try:
                self.stream.flush()
            except OSError as error:
                self._fail(error)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a stream has
        return getattr(self.stream, name)

    def _fail(self, error: OSError) -> None:
        self.error = error
        self.drop()
        self._failed(error)

    def drop(self) -> None:
        """Let what is still written to the descriptor go nowhere; pytest's capturing undoes it."""
        # A stream that a test has put there has no descriptor.
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)


def guarded(stream: TextIO, failed: Callable[[OSError], None] = lambda _error: None) -> TextIO:
    """The stream, guarded, for whoever takes a stream."""
    return cast("TextIO", GuardedOutput(stream, failed))


def cannot_be_written(error: OSError) -> StorageError:
    """What to raise or say of it."""
    return StorageError(f"the output cannot be written: {error.strerror or error}", hint=_HINT)
