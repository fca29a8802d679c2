"""The line on which a board sends its marks to the meter: a UART of their own, the console's, or a GPIO."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.model.trace import Mark, MarkSource

# A line of the meter has 16 bytes; images/initramfs/init and the overlay's login write this form, too.
_OPENING: Final = "{fsj:"
_CLOSING: Final = "}"
_WHOLE: Final = re.compile(r"\{fsj:([A-Za-z0-9]+)\}")
# A GPIO that the kernel drives as an LED: it holds the pin, and one write by a shell sets it.
_LEDS: Final = "/sys/class/leds/"
_EDGES: Final = {MarkSource.RISING: "rising edge", MarkSource.FALLING: "falling edge"}
_START: Final = "S"


@dataclass(frozen=True, slots=True)
class MarkLine:
    """The UART `device`; with `on_console` it is the console's, and the meter listens to the console's output.

    On the console a mark is in braces, `{fsj:S7}`. Lines of the kernel and of programs are none, and a line that other
    text came into is none either.

    A `device` below /sys/class/leds is a GPIO: its level is high from a start mark (a text with S) to a stop mark. An
    edge has no text of its own; the recording that it is in tells which mark it is.
    """

    device: str
    on_console: bool = False

    @property
    def is_gpio(self) -> bool:
        return self.device.startswith(_LEDS)

    @property
    def source(self) -> MarkSource:
        """Where its marks come from, as the uncertainty of their times needs it."""
        return MarkSource.RISING if self.is_gpio else MarkSource.LINE

    def send(self, text: str) -> str:
        """The shell's command that sends a mark; variables in `text` are expanded."""
        if self.is_gpio:
            levels = (
                "01" if text.startswith(_START) else "0"
            )  # after work that never sent its stop mark, the line is high
            return "; ".join(f"echo {level} > {shlex.quote(self.device)}" for level in levels)
        framed = f"{_OPENING}{text}{_CLOSING}" if self.on_console else text
        return f'echo "{framed}" > {shlex.quote(self.device)}'

    def heard_as(self, text: str) -> str:
        """The text of a mark among the `marks` of a trace: its own, or the name of its edge."""
        if not self.is_gpio:
            return text
        return _EDGES[MarkSource.RISING if text.startswith(_START) else MarkSource.FALLING]

    def marks(self, heard: Iterable[Mark]) -> tuple[Mark, ...]:
        """The marks among the lines and edges that the meter heard. Pieces of damaged ones stay, as they are."""
        if self.is_gpio:
            return _named_edges(heard)
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


def _named_edges(heard: Iterable[Mark]) -> tuple[Mark, ...]:
    """Edges get their names as texts, and lines of a UART are no marks.

    A line that was high at first falls before its first start mark: that is no mark either.
    """
    found = [
        replace(each, text=_EDGES.get(each.source, each.text)) for each in heard if each.source is not MarkSource.LINE
    ]
    rises = next((n for n, each in enumerate(found) if each.source is MarkSource.RISING), len(found))
    return tuple(each for n, each in enumerate(found) if n > rises or each.source is not MarkSource.FALLING)


def is_piece(text: str) -> bool:
    """Whether a line may be a piece of a mark that was sent on the console's line."""
    return text.startswith(_OPENING[0]) or text.endswith(_CLOSING)
