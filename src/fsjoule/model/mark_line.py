"""The serial line on which a board sends its marks to the meter: a UART of their own, or the console's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fsjoule.model.meter import Mark, MarkSource

# A line of the meter has 16 bytes; images/initramfs/init and the overlay's login write this form, too.
_OPENING: Final = "{fsj:"
_CLOSING: Final = "}"
_WHOLE: Final = re.compile(r"\{fsj:([A-Za-z0-9]+)\}")


@dataclass(frozen=True, slots=True)
class MarkLine:
    """The UART `device`; with `on_console` it is the console's, and the meter listens to the console's output.

    On the console a mark is in braces, `{fsj:S7}`. Lines of the kernel and of programs are none, and a line that other
    text came into is none either.
    """

    device: str
    on_console: bool = False

    def send(self, text: str) -> str:
        """The shell's command that sends a mark; variables in `text` are expanded."""
        framed = f"{_OPENING}{text}{_CLOSING}" if self.on_console else text
        return f'echo "{framed}" > {shlex.quote(self.device)}'

    def marks(self, heard: Iterable[Mark]) -> tuple[Mark, ...]:
        """The marks among the lines that the meter heard. Pieces of damaged ones stay, as they are."""
        if not self.on_console:
            return tuple(heard)
        found = (self._mark(each) for each in heard)
        return tuple(each for each in found if each is not None)

    def _mark(self, heard: Mark) -> Mark | None:
        if heard.source is not MarkSource.LINE:
            return heard
        whole = _WHOLE.fullmatch(heard.text)
        if whole is not None:
            return Mark(heard.time_us, whole[1], heard.source)
        return heard if is_piece(heard.text) else None


def is_piece(text: str) -> bool:
    """Whether a line may be a piece of a mark that was sent on the console's line."""
    return text.startswith(_OPENING[0]) or text.endswith(_CLOSING)
