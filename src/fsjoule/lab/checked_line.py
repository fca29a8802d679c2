"""A line of shell that the board checks before it runs it, and an answer that is checked in turn. Pure.

A UART that is served late loses characters, and a console's lines have no checksum. A line has a sum of its commands,
and the board evaluates it only if its own sum is the same. Its number, twice, makes it run once: the same line typed
again only repeats the answer, and an older one, out of the history, does not run. The shell itself makes the sums:
a program would take a slow board 0.05 s.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

# All that a command has between its quotes on the line, the usual first. Whatever else it has, also all that could end
# a word or a command if a quote were lost, is escaped as printf's %b takes it.
_ALPHABET: Final = "etasrinodlcpmfuj -/.=0123456789_hbgkvwxyzqABCDEFGHIJKLMNOPQRSTUVWXYZ:,+@%\\[]{}*?~#!"
_BETWEEN: Final = "^"
_NOTHING: Final = r"(?!)"
_FACTOR: Final = 97
# Sums stay below 2^31 with it: not every board's shell has 64 bits.
_PRIME: Final = 16777213
_DIGITS: Final = 9
# How much of an output's SHA-256 the answer has.
_DIGEST: Final = 16

# What is on the console only because of all this, also where a line editor has divided it; the rest is for people.
TRAFFIC: Final = re.compile(
    r"\bfsj \d+ \d+ \d+(?:\s+'[^']*')+|F\d+='[^']*'; printf '.*|<\d{9}(?:[.]\d+|:\d*:\d*:[0-9a-f]*:\d+)?>"
)

FIRST_NUMBER: Final = 10 ** (_DIGITS - 1)
# They rise, also from one process to the next on a board that stays on: a hundred a second.
NUMBERS: Final = count(FIRST_NUMBER + int(time.time() * 100) % (9 * FIRST_NUMBER - 10**6))

DAMAGED: Final = r"<fsj\?>"


@dataclass(frozen=True, slots=True)
class CheckedLine:
    """Commands on their way to the board. They run until one fails; `+` before one leaves its output on the console.

    What matches `alarms` must come from the board itself: its echo of the line does not match them.
    """

    number: int
    commands: tuple[str, ...]
    alarms: str

    @classmethod
    def of(cls, commands: Sequence[str], *alarms: str, numbers: Iterator[int] = NUMBERS) -> CheckedLine:
        return cls(next(numbers), tuple(commands), "|".join(f"(?:{each})" for each in alarms) or _NOTHING)

    @property
    def text(self) -> str:
        escaped = [_escaped(command, re.compile(self.alarms)) for command in self.commands]
        quoted = " ".join(f"'{each}'" for each in escaped)
        return f"fsj {_sum(_BETWEEN.join(escaped))} {self.number} {self.number} {quoted}"

    @property
    def begun(self) -> str:
        """A pattern of what is told before each command, with the command's place from 1 on."""
        return rf"<{self.number}\.(\d+)>"

    @property
    def answered(self) -> str:
        """A pattern of the end of the answer."""
        return rf"<{self.number}:(\d+):(\d*):([0-9a-f]*):(\d+)>"

    def read(self, before: bytes, end: re.Match[bytes]) -> LineResult | None:
        """The answer from the console's output up to its end; None if it was damaged."""
        count, code, digest, told = (each.decode() for each in end.groups())
        if str(_sum(f"{count}:{code}:{digest}")) != told:
            return None
        printed = before.rpartition(f"<{self.number}>".encode())[2].partition(b"\n")[2] if digest else b""
        # What the terminal has made of line feeds.
        for output in (printed.replace(b"\r\n", b"\n"), printed):
            if not digest or hashlib.sha256(output).hexdigest().startswith(digest):
                each = output.decode(errors="replace").split(f"<{self.number}\n")
                return LineResult(int(count), int(code) if code else None, (*each, *[""] * (int(count) - len(each))))
        return None


@dataclass(frozen=True, slots=True)
class LineResult:
    """How many commands of a line have run, the exit code of the last (None: it was interrupted), and their outputs."""

    count: int
    exit_code: int | None
    outputs: tuple[str, ...]


def functions(output: str) -> str:
    """What the board's shell must know: dash, bash or busybox. `output` is the file that takes what commands print.

    The output comes over the console when all have ended: nothing is sent while they run, and no kernel message can get
    into it unnoticed.
    """
    alphabet = _ALPHABET.replace("\\", "\\\\")
    return (
        f'FO={output}; FT="{alphabet}"; Fh() {{ Fs=0; OPTIND=1; while getopts : Fo "-x$1"; do '
        f'Fp=${{FT%%"${{OPTARG:-:}}"*}}; Fs=$(((Fs*{_FACTOR}+${{#Fp}}+1)%{_PRIME})); done; }}; '
        "fsj() { Fa=$1 Fs=; "
        f'if [ $# -gt 3 ] && [ ${{#2}} = {_DIGITS} ] && [ "$2" = "$3" ] && [ "$2" -ge ${{Fn:-0}} ]; then '
        'Fm=$2; shift 3; IFS=^; Fh "$*"; unset IFS; fi; '
        '[ "$Fa" ] && [ "$Fs" = "$Fa" ] || { echo "<fsj?>"; return; }; '
        'if [ "$Fm" != "$Fn" ]; then Fn=$Fm Fk=0 Fr=; for Fc in "$@"; do '
        'case $Fc in *\\\\*) Fc=$(printf %b "$Fc"); esac; '
        'case $Fc in +*) ;; *) [ $Fk = 0 ] && : >$FO || echo "<$Fn" >>$FO; esac; '
        'Fk=$((Fk+1)); echo "<$Fn.$Fk>"; '
        'case $Fc in +*) eval "${Fc#+}"; Fr=$?;; *) eval "( $Fc ) </dev/null >>$FO 2>&1"; Fr=$?; esac; '
        "[ $Fr = 0 ] || break; done; fi; "
        'Fd=; echo "<$Fn>"; [ ! -s $FO ] || { cat $FO; Fd=$(sha256sum <$FO); Fd=${Fd%"${Fd#'
        + "?" * _DIGEST
        + '}"}; }; Fh "$Fk:$Fr:$Fd"; echo "<$Fn:$Fk:$Fr:$Fd:$Fs>"; }'
    )


def _escaped(command: str, alarms: re.Pattern[str]) -> str:
    """A command in the alphabet."""
    return "".join(
        character
        if character in _ALPHABET and character != "\\" and not alarms.match(f"{command}\n", place)
        else "".join(f"\\0{byte:03o}" for byte in character.encode())
        for place, character in enumerate(command)
    )


def _sum(text: str) -> int:
    total = 0
    for character in f"x{text}":
        place = _ALPHABET.find(character)
        total = (total * _FACTOR + (len(_ALPHABET) if place < 0 else place) + 1) % _PRIME
    return total
