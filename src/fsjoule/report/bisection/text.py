"""A bisection on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report.bisection import words
from fsjoule.report.bisection.tables import boot_table, commit_table, first_bad
from fsjoule.report.terminal import room_of, table_lines
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.verdicts.bisection.answer import bisected
from fsjoule.verdicts.bisection.state import BisectionState

_STYLES = {
    AnswerKind.CULPRIT: "bold red",
    AnswerKind.SET: "bold red",
    AnswerKind.NO_REGRESSION: "bold green",
    AnswerKind.UNDECIDED: "bold yellow",
    AnswerKind.UNTESTABLE: "bold yellow",
}


def print_bisection(console: Console, state: BisectionState, *, everything: bool = False, wide: bool = False) -> None:
    """Print the answer or how far the search is, and the most probable commits; `everything`: all, and the boots."""
    for renderable in _renderables(state, room_of(console, wide=wide), everything=everything):
        console.print(renderable, crop=False)


def _renderables(state: BisectionState, room: int | None, *, everything: bool) -> Iterator[ConsoleRenderable]:
    standing, answer = words.standing_of(state)
    told = None if answer is None else bisected(state, answer)
    yield Text(words.lead(state, told, standing), style=_STYLES[told.kind] if told else "bold")
    for name, text in words.facts(state, told):
        yield Text(f"{name:<10} {text}")
    yield Text("")
    yield from table_lines(commit_table(state, first_bad(state), everything=everything), room)
    if everything:
        yield from table_lines(boot_table(state), room)
