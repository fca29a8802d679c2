"""Standard output and error of a program: a failure to write is reported once, and never as another failure.

Python would end with 1 or 120, rich and typer with 1, and pytest with its exit code for a crash. These mean other
causes here. A reader that has closed the pipe (`| head`) has what it wanted: that is no failure.
"""

from __future__ import annotations

import codecs
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TextIO, cast

from fsjoule.errors import StorageError

# How a terminal that has only ASCII, or a pipe with such an encoding, gets what the reports use.
_ASCII: Final = {
    "\u00b1": "+-",
    "\u00b5": "u",
    "\u00b0": "deg",
    "\u00d7": "x",
    "\u2026": "...",
    "\u2013": "-",
    "\u2014": "-",
    "\u2192": "->",
    "\u2264": "<=",
    "\u2265": ">=",
    "\u03a9": "Ohm",
    **dict(zip("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588", "._-~=+*#", strict=True)),
    "\u221e": "inf",
    "\u2191": "^",
    "\u2193": "v",
    "\u2020": "*",
    "\u2021": "**",
    "\u00b7": ".",
    "\u2502": "|",
    **dict.fromkeys("\u2500\u2501\u2550", "-"),
    **dict.fromkeys("\u2510\u2514\u2518\u251c\u2524\u2534", "+"),
}


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
    reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
    if reconfigure is not None:  # a test's stream may lack it
        reconfigure(errors=_IN_ASCII)
    return cast("TextIO", GuardedOutput(stream, failed))


def is_closed_pipe(error: OSError) -> bool:
    """Whether the reader of the output has gone (`| head`), which is nobody's fault."""
    return error.errno == errno.EPIPE


def cannot_be_written(error: OSError) -> StorageError:
    return StorageError(f"the output cannot be written: {error.strerror or error}", hint="make room on its disk")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding lacks. An error handler of `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_ASCII.get(sign, "?") for sign in lacking), error.end


_IN_ASCII: Final = "fsjoule-ascii"
codecs.register_error(_IN_ASCII, _in_ascii)
