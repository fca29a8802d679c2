"""Where a board sends its marks: a UART of their own, the console's, or a GPIO to the meter; or its own counter.

A mark `S7` goes over a UART as `~S7~2287`: with a check that a shell computes without a program. docs/meter-protocol.md
defines it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.model.labels import counted
from fsjoule.model.trace import DAMAGED_MARKS, Mark, MarkSource

_MODULUS: Final = 997
_PER_CHARACTER: Final = 1000
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHECKED: Final = re.compile(r"~([0-9A-Za-z]{1,9})~([1-9][0-9]{3})")
# What is left of a mark with a check begins or ends as one, unless both its ends are hit.
_CHECKED_PIECE: Final = re.compile(r"~.*|.*~[0-9]{1,4}")
# A mark that a shell sends: a letter, more of them, and a variable that holds a decimal number.
_SENT: Final = re.compile(r"([A-Za-z][0-9A-Za-z]*)(\$[A-Za-z0-9_]+)?")
_OF_WORK: Final = re.compile(r"[SE](\d+|boot)")
# A GPIO that the kernel drives as an LED: it holds the pin, and one write by a shell sets it.
_LEDS: Final = "/sys/class/leds/"
_EDGES: Final = {MarkSource.RISING: "rising edge", MarkSource.FALLING: "falling edge"}
_START: Final = "S"
# The file of a counter of the kernel's powercap class, on the board.
_COUNTER: Final = "/energy_uj"
COUNTED: Final = "/tmp/fsjoule-counted"  # noqa: S108 - on the board, whose /tmp is ours alone
_SHOWN_DAMAGED: Final = 3


@dataclass(frozen=True, slots=True)
class MarkLine:
    """The UART `device`; with `on_console` it is the console's, and the meter listens to the console's output.

    On the console only a line with a check is a mark. Lines of the kernel and of programs are none, and a line that
    other text came into is none either.

    A `device` below /sys/class/leds is a GPIO: its level is high from a start mark (a text with S) to a stop mark. An
    edge has no text of its own; the recording that it is in tells which mark it is.

    A `device` named energy_uj is the energy counter of the board's own processor: a mark is a reading of it.
    """

    device: str
    on_console: bool = False

    @property
    def is_gpio(self) -> bool:
        return self.device.startswith(_LEDS)

    @property
    def is_counter(self) -> bool:
        return self.device.endswith(_COUNTER)

    @property
    def source(self) -> MarkSource:
        """Where its marks come from, as the uncertainty of their times needs it."""
        return MarkSource.RISING if self.is_gpio else MarkSource.LINE

    def send(self, text: str) -> str:
        """The shell's command that sends a mark: letters, digits, and at its end a variable with a decimal number."""
        if self.is_gpio:
            levels = (
                "01" if text.startswith(_START) else "0"
            )  # after work that never sent its stop mark, the line is high
            return "; ".join(f"echo {level} > {shlex.quote(self.device)}" for level in levels)
        if self.is_counter:
            return self.reading(text)
        return f'echo "{_checked_by_shell(text)}" > {shlex.quote(self.device)}'

    def reading(self, mark: str = "") -> str:
        """The shell's command that adds a line to COUNTED: nanoseconds since the boot, microjoules, and perhaps a mark.

        The shell itself reads both; no program is started. The third line of /proc/timer_list (for root only) is
        `now at NANOSECONDS nsecs`.
        """
        return (
            "{ read -r fsj_; read -r fsj_; read -r fsj_ fsj_ fsj_ns fsj_; } < /proc/timer_list; "
            f'read -r fsj_uj < {shlex.quote(self.device)}; echo "$fsj_ns $fsj_uj {mark}" >> {COUNTED}'
        )

    def heard_as(self, text: str) -> str:
        """The text of a mark among the `marks` of a trace: its own, or the name of its edge."""
        if not self.is_gpio:
            return text
        return _EDGES[MarkSource.RISING if text.startswith(_START) else MarkSource.FALLING]

    def marks(self, heard: Iterable[Mark]) -> tuple[Mark, ...]:
        """The marks among the lines and edges that the meter heard.

        Where marks come with checks, one of the work without a check is what is left of another one.
        """
        if self.is_gpio:
            return _named_edges(heard)
        lines = tuple(heard)
        if self.on_console:
            return tuple(each for each in lines if each.checked or each.source is not MarkSource.LINE)
        if not any(each.checked for each in lines):
            return lines
        return tuple(
            each
            for each in lines
            if each.checked or each.source is not MarkSource.LINE or not _OF_WORK.fullmatch(each.text)
        )


def check_of(text: str) -> int:
    """The check of a text of 1 to 9 letters and digits: the text as a number modulo 997, and 1000 for each of them.

    For the number a digit is itself, a letter is two digits: A is 10, a is 36.
    """
    return _number(text) % _MODULUS + _PER_CHARACTER * len(text)


def _number(text: str) -> int:
    return int("".join(str(_DIGITS.index(each)) for each in text))


def read_line(line: str) -> tuple[str, bool, bool]:
    """The text of a line of a mark UART, whether it had a check that is right, and whether it is damaged."""
    whole = _CHECKED.fullmatch(line)
    if whole is not None and int(whole[2]) == check_of(whole[1]):
        return whole[1], True, False
    return line, False, _CHECKED_PIECE.fullmatch(line) is not None


def damaged_marks(texts: Sequence[str]) -> str:
    """The fault of a trace whose mark line had these damaged lines, of which there is at least one."""
    shown = ", ".join(map(repr, texts[:_SHOWN_DAMAGED]))
    return f"{counted(len(texts), 'mark')} {DAMAGED_MARKS}: {shown}{', ...' if len(texts) > _SHOWN_DAMAGED else ''}"


def _checked_by_shell(text: str) -> str:
    """A line with its check, which the shell's arithmetic computes if the text has a variable."""
    sent = _SENT.fullmatch(text)
    if sent is None:
        raise ValueError(f"a mark is letters, digits and a variable: not {text!r}")
    fixed, variable = sent[1], sent[2]
    if variable is None:
        return f"~{fixed}~{check_of(fixed)}"
    length = f"({len(fixed)} + ${{#{variable[1:]}}}) * {_PER_CHARACTER}"
    return f"~{text}~$(({_number(fixed)}{variable} % {_MODULUS} + {length}))"


def _named_edges(heard: Iterable[Mark]) -> tuple[Mark, ...]:
    """Edges get their names as texts, and lines of a UART are no marks.

    A line that was high at first falls before its first start mark: that is no mark either.
    """
    found = [
        replace(each, text=_EDGES.get(each.source, each.text)) for each in heard if each.source is not MarkSource.LINE
    ]
    rises = next((n for n, each in enumerate(found) if each.source is MarkSource.RISING), len(found))
    return tuple(each for n, each in enumerate(found) if n > rises or each.source is not MarkSource.FALLING)
