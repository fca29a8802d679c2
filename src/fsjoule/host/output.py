"""Standard output and error of a program: a failure to write is reported once, and never as another failure.

Python would end with 1 or 120, rich and typer with 1, and pytest with its exit code for a crash. These mean other
causes here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TextIO, cast

from fsjoule.errors import StorageError

_HINT: Final = "make room on its disk, or keep its pipe open"


class GuardedOutput:
    """A text stream whose first failure calls `failed`; everything written after that is dropped.

    The whole descriptor is dropped: buffered text must not fail again when the interpreter ends.
    """

    def __init__(self, stream: TextIO, failed: Callable[[OSError], None] = lambda _error: None) -> None:
        self.stream = stream
        self._failed = failed
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        if self.error is None:
            try:
                return self.stream.write(text)
            except OSError as error:
                self._fail(error)
        return len(text)

    def flush(self) -> None:
        if self.error is None:
            try:
                self.stream.flush()
            except OSError as error:
                self._fail(error)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the other attributes of a stream
        return getattr(self.stream, name)

    def _fail(self, error: OSError) -> None:
        self.error = error
        self.drop()
        self._failed(error)

    def drop(self) -> None:
        """Discard further output to the descriptor, until pytest's capturing restores it."""
        # A test's stream has no descriptor.
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)


def guarded(stream: TextIO, failed: Callable[[OSError], None] = lambda _error: None) -> TextIO:
    return cast("TextIO", GuardedOutput(stream, failed))


def cannot_be_written(error: OSError) -> StorageError:
    return StorageError(f"the output cannot be written: {error.strerror or error}", hint=_HINT)
