"""Advice in the terminal: the answer first, then the figures, then what would make them better."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report.advice import words
from fsjoule.report.advice.tables import tables
from fsjoule.report.terminal import footnote, named_lines, room_of, table_lines
from fsjoule.verdicts.advice.advise import Advice


def print_advice(console: Console, advice: Advice, *, wide: bool = False) -> None:
    for renderable in _renderables(advice, room_of(console, wide=wide)):
        console.print(renderable, crop=False)
    for what, command in words.missing(advice):
        # Commands are for copying: neither wrapped nor coloured.
        console.print(f"\nnot measured: {what}", style="yellow")
        console.print(f"  {command}", soft_wrap=True, markup=False, highlight=False)


def _renderables(advice: Advice, room: int | None) -> Iterator[ConsoleRenderable]:
    yield Text(words.headline(advice), style="bold")
    for table in tables(advice):
        yield from table_lines(table, room)
    yield footnote(words.rules(advice))
    sections = {
        "Ruled out": words.ruled_out(advice),
        "Which is less": words.relations(advice),
        "The question": words.facts(advice),
        "Damaged, left out": list(advice.evidence.damaged.items()),
    }
    for title, lines in sections.items():
        if lines:
            yield named_lines(title, lines)
    if notes := words.notes(advice):
        yield Text("\nTo know", style="bold yellow")
        yield from map(Text, notes)
